# Completion of kubectl-cdi for bash: source <(kubectl-cdi completions bash)
_kubectl_cdi() {
    local piece line current prefix glue='' count=0
    local -a words=()
    # bash breaks words at : and =, which are in the middle of ours.
    for piece in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if ((count)) && [[ $glue || $piece == [:=]* ]]; then
            words[count - 1]+=$piece
        else
            words[count++]=$piece
        fi
        glue=
        [[ $piece != [:=]* ]] || glue=1
    done
    current=${words[count - 1]}
    prefix=${current%"${current##*[:=]}"}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :4) compopt +o default 2>/dev/null ;;
        :*) ;;
        *)
            line=${line%%$'\t'*}
            COMPREPLY+=("${line#"$prefix"}")
            ;;
        esac
    done < <("$1" complete "${words[@]}" 2>/dev/null)
}
complete -o default -F _kubectl_cdi kubectl-cdi
