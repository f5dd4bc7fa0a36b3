#!/usr/bin/env bash
# Keeps a model's placement up to date:
#
#     regenerate.sh SOURCE PLACEMENT
#
# SOURCE is that of `pesto export`. While PLACEMENT is fresh, nothing is solved or written. If the
# model or the times of its ops have changed, a new placement is solved, with the old one as warm
# start: the same inputs result in the same bytes. It replaces the old placement, unless the step is
# slower than the old prediction by more than MAX_REGRESSION: then the script ends with exit code 1.
# Environment variables, with their defaults:
#     MACHINE          a preset or a machine file                          [v100x2-nvlink]
#     TIME_LIMIT       limit of the search, in units of work of about a second each  [60]
#     MAX_REGRESSION   how much slower a step may get                                [2%]
#     ACCEPT_BY        how to accept a slower step, for the comment [a larger MAX_REGRESSION]
#     SUMMARY          a file to which Markdown is appended         [$GITHUB_STEP_SUMMARY]
#     COMMENT          a file for the result as Markdown; it is not written if nothing
#                      has changed                                                 [none]
set -euo pipefail

source=${1:?usage: regenerate.sh SOURCE PLACEMENT}
name=${2:?usage: regenerate.sh SOURCE PLACEMENT}
max_regression=${MAX_REGRESSION:-2%}
search=(--deterministic --time-limit "${TIME_LIMIT:-60}")

# Prints a writable path, absolute and without links. Exit code 5 is pesto's for system errors.
usable() {
    mkdir -p "$(dirname "$1")"
    local path
    path=$(readlink -f "$1")
    if [[ $path != /dev/null && (-d $path || ! -w $(dirname "$path")) ]]; then
        echo "Error: $1 cannot be written; a file in a writable folder was expected." >&2
        exit 5
    fi
    echo "$path"
}
if [[ ! $max_regression =~ ^[0-9.]+%$ ]]; then
    echo "Error: MAX_REGRESSION is $max_regression; a percentage such as 2% was expected." >&2
    exit 2
fi
placement=$(usable "$name")
summary=$(usable "${SUMMARY:-${GITHUB_STEP_SUMMARY:-/dev/null}}")
comment=$(usable "${COMMENT:-/dev/null}")
if [[ $comment != /dev/null ]]; then rm -f "$comment"; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ends with exit code $1, and reports the headline $2 and the Markdown in file $3.
finish() {
    { printf '### %s: %s\n\n' "$name" "$2"; cat "$3"; } > "$work/comment.md"
    cat "$work/comment.md" > "$comment"
    cat "$work/comment.md" >> "$summary"
    echo "$name: $2" >&2
    exit "$1"
}

# Runs a command and accepts exit codes up to $1; a larger one ends the script with a report.
run() {
    local most=$1
    shift
    code=0
    "$@" 2> "$work/log" || code=$?
    if ((code == 0 || code > most)); then cat "$work/log" >&2; fi
    if ((code > most)); then
        { echo '```'; tail -n 20 "$work/log"; echo '```'; } > "$work/failure.md"
        finish "$code" "pesto $2 failed" "$work/failure.md"
    fi
}

run 0 pesto export "$source" -o "$work/model.meta" --quiet
run 0 pesto profile "$work/model.meta" --machine "${MACHINE:-v100x2-nvlink}" \
    -o "$work/model.profile.json" --quiet

cd "$work"
if [[ ! -e $placement ]]; then
    run 0 pesto solve model.profile.json -o after "${search[@]}" --summary solved.md
    mv after "$placement"
    finish 0 "new" solved.md
fi

cp "$placement" before
limit=(--profile model.profile.json --max-regression "$max_regression")
run 1 pesto check model.meta "$placement" "${limit[@]}"
if [[ $code == 0 ]]; then exit 0; fi    # fresh

run 0 pesto solve model.profile.json -o after "${search[@]}" --warm-start before
run 1 pesto diff before after "${limit[@]}" --format md > difference.md
if [[ $code == 1 ]]; then
    cat log >&2
    accept_by=${ACCEPT_BY:-a larger MAX_REGRESSION}
    finish 1 "kept, as the new step is more than $max_regression slower ($accept_by accepts it)" \
        difference.md
fi
mv after "$placement"
finish 0 "replaced" difference.md
