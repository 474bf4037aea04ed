"""What property and fault tests share: brute force, random programs, back ends, bodies."""
