#!/bin/sh
# The whole test suite: run it with `sh test.sh`.
failed=0

check() {
    if [ "$2" = "$3" ]; then
        echo "ok: $1"
    else
        echo "FAILED: $1: expected \"$2\", got \"$3\""
        failed=1
    fi
}

check "greets by name" "Hello, Ada!" "$(sh ./greet.sh Ada)"
check "greets the world when no name is given" "Hello, world!" "$(sh ./greet.sh)"

[ "$failed" -eq 0 ] && echo "All tests passed."
exit "$failed"
