# shellcheck shell=bash
# Starts steps ahead of their turn, in the background. To be sourced.

# begin NAME: starts the step NAME ahead of its turn. `begun NAME` later prints its output and
# returns its exit code.
begun_folder=$(mktemp -d)
begin() {
    # A separate process group, which is killed at the end of this script.
    set -m
    (
        set +e
        (
            set -e
            "$1"
        )
        echo $? >"$begun_folder/$1.code"
    ) >"$begun_folder/$1.log" 2>&1 </dev/null &
    set +m
    echo $! >"$begun_folder/$1.pid"
}

begun() {
    local name=$1
    tail --lines=+1 --follow --pid="$(cat "$begun_folder/$name.pid")" "$begun_folder/$name.log"
    return "$(cat "$begun_folder/$name.code")"
}

end_begun() {
    local file
    for file in "$begun_folder"/*.pid; do
        [ ! -e "$file" ] || kill -- "-$(cat "$file")" 2>/dev/null || true
    done
    rm -rf "$begun_folder"
}
trap end_begun EXIT
