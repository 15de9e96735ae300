# complete.bash PROGRAM WORD…: what bash offers for the last word of a line; the words are those into which readline breaks it.
program=$1
shift
source <("$program" completions bash)
registered=$(complete -p "$program")
function=${registered##* -F }
COMP_WORDS=("$program" "$@")
COMP_CWORD=$#
# The real one needs a line that is being edited. What it asks for is what readline would do when there are no candidates.
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
