#!/bin/sh
# The C++ compiler of the tests ($ET_TEST_CXX, a GCC), which parses the standard headers of kernels once
# for all processes of a run ($ET_TEST_HEADERS). What it makes is equal to the byte: a GCC takes a
# precompiled header only if it was made with the same flags.
flags=
shared=no
for word in "$@"; do
  case $word in
    -include | -fsanitize=*) shared=never ;;
    -shared) [ $shared = never ] || shared=yes ;;
    -std=* | -O* | -f* | -m* | -pthread) flags="$flags $word" ;;
  esac
done
[ $shared = yes ] || exec "$ET_TEST_CXX" "$@"

folder=$ET_TEST_HEADERS/$(printf %s "$flags" | cksum | cut -d' ' -f1)
if [ ! -e "$folder/kernel.h.gch" ]; then
  mkdir -p "$folder"
  cp "$ET_TEST_HEADERS/kernel.h" "$folder/kernel.h"
  # shellcheck disable=SC2086  # flags are words
  "$ET_TEST_CXX" $flags -x c++-header "$folder/kernel.h" -o "$folder/$$.gch" &&
    mv "$folder/$$.gch" "$folder/kernel.h.gch"
fi
exec "$ET_TEST_CXX" -include "$folder/kernel.h" "$@"
