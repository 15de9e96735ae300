#compdef kubectl-cdi
# Completion of kubectl-cdi for zsh: kubectl-cdi completions zsh > "${fpath[1]}/_kubectl-cdi"
_kubectl-cdi() {
    local line
    local -a candidates
    for line in "${(@f)$("${(Q)words[1]}" complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
        :0) _files ;;
        :*) ;;
        *$'\t'*) candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
        ?*) candidates+=("${line//:/\\:}") ;;
        esac
    done
    (($#candidates)) && _describe -t candidates kubectl-cdi candidates
}
if [[ ${funcstack[1]} == _kubectl-cdi ]]; then
    _kubectl-cdi "$@"
else
    compdef _kubectl-cdi kubectl-cdi
fi
