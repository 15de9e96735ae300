# Completion of @PROGRAM@ for bash: source <(@PROGRAM@ completions bash)
_@FUNCTION@() {
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
        :16) compopt +o default -o dirnames 2>/dev/null ;;
        :*) ;;
        *)
            line=${line%%$'\t'*}
            COMPREPLY+=("${line#"$prefix"}")
            ;;
        esac
    done < <("${1/#~\//$HOME/}" complete "${words[@]}" 2>/dev/null)
}
complete -o default -F _@FUNCTION@ @PROGRAM@
