# complete.zsh PROGRAM LINE: prints zsh's candidates for the last word of a line. Completion works
# only in the line editor, so a second shell gets the line typed into a terminal and writes the
# candidates to a file.
zmodload zsh/zpty
zmodload zsh/datetime
export SHOWN=$(mktemp) PROGRAM=$1
setup=$(mktemp)
cat >$setup <<'SETUP'
PROMPT=
autoload -Uz compinit && compinit -u -D
source <($PROGRAM completions zsh)
compadd() {
    # With these options `compadd` fills arrays for its caller instead of offering candidates.
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a offered
    builtin compadd -A offered "$@"
    (($#offered)) || return 1
    print -rl -- "${offered[@]}" >>$SHOWN
}
end-completion() {
    print END >>$SHOWN
    exit
}
comppostfuncs=(end-completion)
bindkey '^I' complete-word
SETUP
zpty shell zsh -f -i
zpty -w shell "source $setup"
zpty -n -w shell "$2"$'\t'
until [[ $(<$SHOWN) == *END ]]; do
    zpty -t shell || break
    zpty -r shell output >/dev/null 2>&1
    sleep 0.02
done
sed '/^END$/d' $SHOWN
rm $SHOWN $setup
zpty -d shell
