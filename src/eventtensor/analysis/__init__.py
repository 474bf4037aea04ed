"""Questions about a program, answered with witnesses. isl objects never leave this package."""
