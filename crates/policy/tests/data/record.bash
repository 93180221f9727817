# Evaluates generated lines without running anything: every name of the vocabulary is a function that only records its
# arguments, PATH is empty, and unknown names are recorded too. Lines come on descriptor 3, each terminated by NUL; calls
# are written to descriptor 9, errors to standard error.
PATH=/nonexistent
unset IFS CDPATH BASH_ENV ENV
FUNCNEST=30
ulimit -c 0 -f 20000 -t 60 2>/dev/null
id=0 calls=0 odd=0
say() {
    local said
    builtin printf -v said '\x1f%s' "${@//$'\n'/$'\x1e'}"
    builtin printf '%s\n' "$id$said" >&9
    calls=$((calls + 1))
    # A loop that does not end by itself ends here.
    ((calls > 200)) && builtin exit
    builtin return $(((calls + odd) % 2))
}
command_not_found_handle() { say "$@"; }
for name in aa bb cc dd ee cd echo printf true false test ls rm cat git cargo kill : pwd sleep head tail wc grep sort tee \
    comm diff find yes npm make sudo; do
    builtin eval "$name() { say $name \"\$@\"; }"
done
# Wrappers that run their arguments like the real ones.
for name in nohup setsid busybox; do
    builtin eval "$name() { say $name \"\$@\"; \"\$@\"; }"
done
for name in env sudo; do
    builtin eval "$name() { say $name \"\$@\"; while [[ \$1 == *=* ]]; do shift; done; \"\$@\"; }"
done
timeout() { say timeout "$@"; shift; "$@"; }
nice() {
    say nice "$@"
    case $1 in
    -n) shift; shift ;;
    -n* | -[0-9]*) shift ;;
    esac
    "$@"
}
bash() {
    say bash "$@"
    if [[ $1 == -c ]]; then
        ( builtin eval "$2" )
    elif [[ $# == 0 ]]; then
        local script
        IFS= builtin read -r -d '' script
        ( builtin eval "$script" )
    fi
}
sh() { say sh "$@"; [[ $1 == -c ]] && ( builtin eval "$2" ); }
xargs() { say xargs "$@"; "$@"; }
unset name
v='aa bb' n=3
while IFS= builtin read -r -d '' -u 3 line; do
    id=$((id + 1))
    odd=$((id % 2))
    builtin printf '@%s\n' "$id" >&2
    (
        calls=0
        # Loops that call nothing end by this.
        ulimit -t 2
        builtin eval "$line"
        builtin wait
    ) 3<&- </dev/null >/dev/null
done
