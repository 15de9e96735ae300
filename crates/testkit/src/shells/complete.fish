# complete.fish PROGRAM LINE: what fish offers for the last word of a line.
$argv[1] completions fish | source
complete -C "$argv[2]"
