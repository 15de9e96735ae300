# complete.bash PROGRAM WORD…: prints bash's candidates for the last word of a line, whose words
# are split as by readline.
program=$1
shift
source <("$program" completions bash)
registered=$(complete -p "$program")
function=${registered##* -F }
COMP_WORDS=("$program" "$@")
COMP_CWORD=$#
# The real `compopt` works only while a line is edited. It would set what readline does if there
# are no candidates.
kind=none
[[ $registered != *'-o default'* ]] || kind=file
compopt() {
    [[ " $*" != *' +o default'* ]] || kind=none
    [[ " $*" != *' -o dirnames'* ]] || kind=directory
}
"${function%% *}" "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
if ((${#COMPREPLY[@]})); then
    printf '%s\n' "${COMPREPLY[@]}"
elif [[ $kind != none ]]; then
    last=${COMP_WORDS[COMP_CWORD]}
    compgen -A "$kind" -- "${last#=}"
fi
