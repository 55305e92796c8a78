# Speaks to `greenroom acp` by acpx, a client of the Agent Client Protocol from npm.
#
#     tests/clients/acpx.sh PROGRAM        acpx is in PATH
set -euo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder
cat >desk.toml <<'TOML'
run = { root = "desk" }
agents.desk = { behavior = "script", turns = [[{ say = "It rains." }]] }
TOML

said=$(acpx --agent "$program --store sqlite:$folder/desk.db acp --program $folder/desk.toml" --format json exec "What is the weather?" 2>errors) || {
    cat errors >&2
    exit 1
}
for word in '"name":"greenroom"' 'It rains.' '"stopReason":"end_turn"'; do
    grep -qF -- "$word" <<<"$said" || {
        printf 'expected: %s\nfound: %s\n' "$word" "$said" >&2
        cat errors >&2
        exit 1
    }
done
# What was said is on disk.
"$program" --store "sqlite:$folder/desk.db" list | grep -qF '[complete]'
echo "acpx: a prompt and its answer"
