# SPDX-License-Identifier: BSD-3-Clause
# tutti.bash - completes the words of `tutti` in bash 4.3 or newer. The program
# itself knows the answers (`tutti --complete WORD...`).

_tutti()
{
    local rest=${COMP_LINE:0:COMP_POINT} word answer value i
    local -a words=() files=()
    # The words again: bash has cut them at : and = and @, too.
    for ((i = 0; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $rest == [[:blank:]]* ]]; then
            rest=${rest#"${rest%%[![:blank:]]*}"}
            words+=("$word")
        else
            words[-1]+=$word
        fi
        rest=${rest#"$word"}
    done
    if [[ $rest == [[:blank:]]* ]]; then
        words+=("${rest#"${rest%%[![:blank:]]*}"}")
    else
        words[-1]+=$rest
    fi
    # What bash does not replace: the part of the word before the last cut.
    local head='' part=${words[-1]}
    for ((i = ${#part}; i > 0; i--)); do
        if [[ ${part:i-1:1} == [:=@] && $COMP_WORDBREAKS == *"${part:i-1:1}"* ]]; then
            head=${part:0:i}
            break
        fi
    done
    # A file may stand behind the = of an option.
    local begun=$part
    [[ $part != --*=* ]] || begun=${part#*=}
    local program=${words[0]/#\~\//"$HOME"/}

    COMPREPLY=()
    while IFS= read -r answer; do
        case $answer in
        :files) mapfile -t files < <(compgen -f -- "$begun") ;;
        :dirs) mapfile -t files < <(compgen -d -- "$begun") ;;
        :commands) mapfile -t files < <(compgen -c -- "$begun"; compgen -f -- "$begun") ;;
        *)
            value=${answer%%$'\t'*}
            COMPREPLY+=("${value#"$head"}")
            ;;
        esac
    done < <("$program" --complete "${words[@]:1}" 2>/dev/null)
    if ((${#COMPREPLY[@]} == 0)); then
        compopt -o filenames 2>/dev/null
    fi
    for value in ${files[@]+"${files[@]}"}; do
        [[ $part != --*=* ]] || value=${part%%=*}=$value
        COMPREPLY+=("${value#"$head"}")
    done
    # More is to follow behind a colon or an equals sign.
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -F _tutti tutti
