# complete.fish PROGRAM LINE: prints fish's candidates for the last word of a line.
$argv[1] completions fish | source
complete -C "$argv[2]"
