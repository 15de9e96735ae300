#compdef @PROGRAM@
# Completion of @PROGRAM@ for zsh: @PROGRAM@ completions zsh > "${fpath[1]}/_@PROGRAM@"
_@PROGRAM@() {
    local line files=''
    local -a candidates
    for line in "${(@f)$("${(Q)words[1]/#\~\//$HOME/}" complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
        :0) files=_files ;;
        :16) files='_files -/' ;;
        :*) ;;
        *$'\t'*) candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
        ?*) candidates+=("${line//:/\\:}") ;;
        esac
    done
    if [[ $files ]]; then
        # A path may follow an option and an equals sign.
        [[ $PREFIX != --*=* ]] || compset -P 1 '*='
        ${=files}
    elif (($#candidates)); then
        _describe -t candidates @PROGRAM@ candidates
    fi
}
if [[ ${funcstack[1]} == _@PROGRAM@ ]]; then
    _@PROGRAM@ "$@"
else
    compdef _@PROGRAM@ @PROGRAM@
fi
