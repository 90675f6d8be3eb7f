#!/usr/bin/env bash
# tests/lint/size.sh <file>...: files of at most 800 lines, functions of at most 80 (tables exempt).
set -u
bad=0
for f in "$@"; do
	n=$(wc -l <"$f")
	[ "$n" -le 800 ] || { echo "$f: $n lines, more than 800"; bad=1; }
	awk -v f="$f" '
		/^\{/ { start = FNR }
		/^\}/ && start { if (FNR - start > 80) { printf "%s:%d: a function of %d lines, more than 80\n", f, start, FNR - start; bad = 1 } start = 0 }
		END { exit bad }' "$f" || bad=1
done
exit $bad
