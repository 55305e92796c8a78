# Asks `greenroom mcp` by MCP's own inspector, which starts a server for each call: what one has accepted the next one has.
#
#     tests/clients/inspector.sh PROGRAM        mcp-inspector is in PATH
set -euo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder
cat >agents.toml <<'TOML'
run = { root = "editor" }
agents.editor = { behavior = "script", turns = [] }
agents.clerk = { behavior = "script", turns = [[{ say = "It rains." }], [{ say = "Still." }]] }
TOML

ask() {
    mcp-inspector --cli "$program" --store sqlite:desk.db mcp --root project --program agents.toml --method "$@" 2>errors
}
call() {
    local tool=$1
    shift
    ask tools/call --tool-name "$tool" "${@/#/--tool-arg=}"
}
# Has the one word of the answer that was expected.
expect() {
    grep -qF -- "$1" <<<"$2" || {
        printf 'expected: %s\nfound: %s\n' "$1" "$2" >&2
        cat errors >&2
        exit 1
    }
}

tools=$(ask tools/list)
for tool in subagent send_message list_agents wait read_log interrupt; do
    expect "\"name\": \"$tool\"" "$tools"
done
expect '(no subagents)' "$(call list_agents)"
expect 'It rains.' "$(call subagent 'description=one question' 'prompt=What is the weather?')"
started=$(call subagent 'description=the weather' 'prompt=What is the weather?' run_in_background=true)
child=$(grep -o 'started subagent [^"]*' <<<"$started" | cut -d' ' -f3)
expect 'It rains.' "$(call wait "subagent_id=$child" timeout=60)"
expect "$child [complete] — the weather" "$(call list_agents)"
expect "message queued as the next turn for subagent $child" "$(call send_message "subagent_id=$child" 'message=And now?')"
expect 'Still.' "$(call wait "subagent_id=$child" timeout=60)"
expect 'the log ends here' "$(call read_log "subagent_id=$child" limit=200)"

# A failure is the result of a call, and the exit is its own.
rc=0
refused=$(call send_message subagent_id=nobody message=x) || rc=$?
[ $rc -ne 0 ]
expect 'the message was not delivered' "$refused"
echo "inspector: each call of another server, and all of them over one store"
