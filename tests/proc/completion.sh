#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# completion.sh - what `tutti --complete` answers; the function of bash on lines with
# a cursor; and the tabulator key in a real bash and a real zsh.
. "$(dirname "$0")/lib.sh"
. "$here/../../share/completion/tutti.bash"
cd "$tmp" || exit 1
mkdir folder
touch fold.schedule full.net

# ---- the answers

answers() { # WORDS...: values only, in one line
    "$tutti" --complete "$@" | cut -f1 | tr '\n' ' '
}
is "commands" "$(answers pl)" "plan "
is "all of them" "$(answers '' | wc -w)" \
    "$("$tutti" --help | sed -n '/^example/q; /^  [a-z]/p' | wc -l)"
is "words of tutti itself" "$(answers --)" "--help --version "
is "a command that is none" "$(answers nonsense '')" ""
# Options are those of the tables, which the help shows.
for word in $(answers ''); do
    is "the options of $word" "$(answers "$word" - | tr ' ' '\n' | sort | xargs)" \
        "$("$tutti" "$word" --help | awk '/^options:/ { on = 1; next } /^examples:/ { exit }
            on && /^  -/ { $0 = substr($0, 3); sub(/  .*/, ""); n = split($0, w, /[ ,]+/)
                           for (i = n; w[i] !~ /^-/;) i--
                           print w[i] }' | sort | xargs)"
done
is "what an option is for" "$("$tutti" --complete plan --siz)" \
    $'--size\tsize of the vector (64MiB)'
is "a short name as it is" "$(answers plan -s)" "-s "
is "the value of an option" "$(answers plan --coll all-)" "all-reduce all-gather all-to-all "
is "behind =" "$(answers plan --coll=all-g)" "--coll=all-gather "
is "of a short name" "$(answers bench -d f)" "f16 f32 f64 "
is "operations" "$(answers bench --op b)" "band bor bxor "
is "planners" "$(answers plan -p fl)" "flexreduce flexreduce-bw "
is "auto, too" "$(answers plan --planner au)" "auto "
is "words of a table" "$(answers show --to s)" "svg schedule "
is "lists with names that stand for more" "$(answers controller --group '')" "auto "
is "a value that nobody knows" "$(answers plan --size 6)" ""
is "networks, and files" "$(answers plan to)" "torus: :files "
is "a network goes on as nobody knows" "$(answers plan torus:)" ":files "
is "machines are whole" "$(answers plan blueconnect-1)" "blueconnect-192 :files "
is "planners or files, then a network" "$(answers show ring fu)" ":files full: "
is "collectives" "$(answers bench all-t)" "all-to-all "
is "files" "$(answers verify '')" ":files "
is "a file to write" "$(answers plan full:4 -o '')" ":files "
is "folders" "$(answers trace '')" ":dirs "
is "programs" "$(answers run -n 4 '')" ":commands "
is "files of a program" "$(answers run -n 4 cat '')" ":files "
is "another tutti" "$(answers run -n 4 "$tutti" bench --inp)" "--inplace "
is "no options behind --" "$(answers run -- --pr)" ":commands "
is "shells" "$(answers completion '')" "bash zsh "
run "$tutti" --complete run -n 2 -- touch "$tmp/started" ''
ends "nothing is started" 0
is "indeed" "$(ls "$tmp/started" 2>&1 | grep -c 'No such')" 1
for shell in bash zsh; do
    run "$tutti" completion $shell
    ends "the script of $shell" 0
done
run "$tutti" completion fish
ends "a shell that is not known" 2
one_sentence "in one sentence"

# ---- bash's function. `|` is the cursor.

compopt() { echo "$@" >>"$tmp/options"; }
# typed LINE: what the function offers, in one line; words as bash cuts them.
typed() {
    local word
    COMP_LINE=${1/|/}
    COMP_POINT=${1%%|*}
    COMP_POINT=${#COMP_POINT}
    COMP_WORDBREAKS=$' \t\n"\'><=;|&(:@'
    mapfile -t COMP_WORDS < <(grep -oE '[^ :=@]+|[:=@]+' <<<"$COMP_LINE")
    COMP_CWORD=$(grep -oE '[^ :=@]+|[:=@]+' <<<"${COMP_LINE:0:COMP_POINT}" | wc -l)
    COMP_CWORD=$((COMP_CWORD - 1))
    if [[ ${COMP_LINE:0:COMP_POINT} == *' ' ]]; then
        COMP_CWORD=$((COMP_CWORD + 1))
        COMP_WORDS=("${COMP_WORDS[@]:0:COMP_CWORD}" '' "${COMP_WORDS[@]:COMP_CWORD}")
    fi
    COMPREPLY=()
    : >"$tmp/options"
    _tutti
    printf '%s/' "${COMPREPLY[@]-nothing}"
}
is "bash: a command" "$(typed "$tutti pl|")" "plan/"
is "bash: within the line" "$(typed "$tutti pl| full:4")" "plan/"
is "bash: an option" "$(typed "$tutti plan full:4 --siz|")" "--size/"
is "bash: all that begin so" "$(typed "$tutti plan --s|")" "--size/"
is "bash: a value" "$(typed "$tutti plan --coll all-g|")" "all-gather/"
is "bash: a value behind =" "$(typed "$tutti plan --coll=all-g|")" "all-gather/"
is "bash: all values behind =" "$(typed "$tutti show --to=s|")" "svg/schedule/"
is "bash: a network" "$(typed "$tutti plan tor|")" "torus:/"
is "bash: a network goes on" "$(cat "$tmp/options")" "-o nospace"
is "bash: nothing behind its colon" "$(typed "$tutti plan torus:|")" "nothing/"
is "bash: an option behind a network" "$(typed "$tutti plan racks:4+4@nic=1Gbit --jso|")" "--json/"
is "bash: files" "$(typed "$tutti verify fo|")" "fold.schedule/folder/"
is "bash: are file names" "$(cat "$tmp/options")" "-o filenames"
is "bash: a file behind =" "$(typed "$tutti plan full:4 --output=fold.|")" "fold.schedule/"
is "bash: folders" "$(typed "$tutti trace fo|")" "folder/"
is "bash: networks and files" "$(typed "$tutti plan ful|")" "full:/full.net/"
is "bash: no program of that name" "$(typed "$tmp/none pl|")" "nothing/"

# ---- the key, in shells that think a person is typing

# press SHELL WAY TUTTI DIR LINE...: types each line and a tabulator, and prints what
# then stands there, which a key that the shell is told of says.
cat >"$tmp/press.py" <<'P'
import os, pty, re, select, signal, sys, time
shell, way, tutti, out, *lines = sys.argv[1:]
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(PATH=os.path.dirname(tutti) + ":" + os.environ["PATH"], HOME=out,
                      PS1="ready ", TERM="dumb", ZDOTDIR=out)
    os.execvp(shell, {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell])
said = b""
def until(what):
    """Reads until the shell has said it; 120 seconds at most."""
    global said
    end = time.monotonic() + 120
    while what not in said:
        if time.monotonic() > end or not select.select([fd], [], [], 120)[0]:
            sys.exit(f"{shell} has not said {what!r}: {said!r}")
        said += os.read(fd, 65536)
    said = said[said.index(what) + len(what):]
def type_in(text):
    os.write(fd, text.encode())
# The words are said in two parts, so that the echo of a line is not taken for them.
if shell == "bash":
    type_in("source <(tutti completion bash); echo se't up'\n")
    until(b"set up")
    type_in("there() { printf '%s' \"$READLINE_LINE\" >line; echo ty'ped'; READLINE_LINE=; }; "
            "bind -x '\"\\C-t\": there'; echo bou'nd'\n")
    until(b"bound")
else:
    # From a script that is sourced, or from a folder of $fpath.
    before, after = (":", "source <(tutti completion zsh)") if way == "sourced" else (f"fpath=({way} $fpath)", ":")
    type_in(f"{before}; autoload -Uz compinit && compinit -u -D; {after}; echo se't up'\n")
    until(b"set up")
    type_in("there() { print -rn -- \"$BUFFER\" >line; BUFFER=; zle -I; echo ty'ped'; zle reset-prompt }; "
            "zle -N there; bindkey '^T' there; echo bou'nd'\n")
    until(b"bound")
for line in lines:
    type_in(line + "\t\x14")
    until(b"typed")
    print(open("line").read())
type_in("exit\n")
os.waitpid(pid, 0)
P
lines=("tutti pl" "tutti plan --coll all-g" "tutti plan full:4 --pla" "tutti topo tor"
    "tutti plan --coll=all-g" "tutti plan racks:4+4 --jso" "tutti verify fold." "tutti run -n 2 tutti ben")
wanted="tutti plan 
tutti plan --coll all-gather 
tutti plan full:4 --planner 
tutti topo torus:
tutti plan --coll=all-gather 
tutti plan racks:4+4 --json 
tutti verify fold.schedule 
tutti run -n 2 tutti bench "
for shell in bash zsh "zsh $here/../../share/completion"; do
    way=${shell#* }
    [ "$way" != "$shell" ] || way=sourced
    shell=${shell%% *}
    if ! command -v $shell >/dev/null || ! command -v python3 >/dev/null; then
        skip "$shell: the key" "no $shell or no python3 here"
        continue
    fi
    run timeout 300 python3 "$tmp/press.py" $shell "$way" "$tutti" "$tmp" "${lines[@]}"
    is "$shell: the key, $(basename "$way")" "$out" "$wanted"
done

finish
