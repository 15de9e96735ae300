# complete.zsh PROGRAM LINE: what zsh offers for the last word of a line. Its completion works only in an editor, so a second shell
# gets the line typed into a terminal, and writes into a file what it would show.
zmodload zsh/zpty
zmodload zsh/datetime
export SHOWN=$(mktemp) PROGRAM=$1
setup=$(mktemp)
cat >$setup <<'SETUP'
PROMPT=
autoload -Uz compinit && compinit -u -D
source <($PROGRAM completions zsh)
compadd() {
    # With these options it fills arrays for its caller instead of offering something.
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
