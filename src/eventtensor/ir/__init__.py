"""What a program is. No module here imports from lang, analysis, schedule or a back end."""
