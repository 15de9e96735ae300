# Completion of kubectl-cdi for fish: kubectl-cdi completions fish > ~/.config/fish/completions/kubectl-cdi.fish
function __kubectl_cdi
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] complete $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case :0
                __fish_complete_path "$current"
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c kubectl-cdi -f -a '(__kubectl_cdi)'
