# Completion of @PROGRAM@ for fish: @PROGRAM@ completions fish > ~/.config/fish/completions/@PROGRAM@.fish
function __@FUNCTION@
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $current)
    set -l path (string replace -r -- '^--[^=]*=' '' $current)
    for line in ($words[1] complete $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case :0
                string replace -r -- '^' "$option" (__fish_complete_path "$path")
            case :16
                string replace -r -- '^' "$option" (__fish_complete_directories "$path")
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c @PROGRAM@ -f -a '(__@FUNCTION@)'
