#!/usr/bin/env bash
# Keeps a model's placement up to date:
#
#     regenerate.sh SOURCE PLACEMENT
#
# SOURCE is what `pesto export` takes. While PLACEMENT is fresh, nothing is solved or written. When
# the model, or what its ops cost, has changed, a new one is solved that starts from the old one: the
# same bytes for the same inputs. It replaces the old one, unless the step gets slower by more than
# is accepted: then the script ends with exit code 1. In the environment:
#
#     MACHINE          a preset or a machine file                          [v100x2-nvlink]
#     TIME_LIMIT       of the search, in units of work, about a second each          [60]
#     MAX_REGRESSION   how much slower a step may get                                [2%]
#     SUMMARY          a file that gets Markdown appended           [$GITHUB_STEP_SUMMARY]
#     COMMENT          a file for what has changed, as Markdown                    [none]
set -euo pipefail

source=${1:?usage: regenerate.sh SOURCE PLACEMENT}
placement=${2:?usage: regenerate.sh SOURCE PLACEMENT}
max_regression=${MAX_REGRESSION:-2%}
summary=${SUMMARY:-${GITHUB_STEP_SUMMARY:-}}
summarise=(${summary:+--summary "$summary"})

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
graph=$work/model.meta profile=$work/model.profile.json new=$work/new.placement.json

pesto export "$source" -o "$graph" --quiet
pesto profile "$graph" --machine "${MACHINE:-v100x2-nvlink}" -o "$profile" --quiet

start=()
if [[ -e $placement ]]; then
    code=0
    pesto check "$graph" "$placement" --profile "$profile" --max-regression "$max_regression" \
        "${summarise[@]}" || code=$?
    case $code in
        0) exit 0 ;;                                # fresh
        1) start=(--warm-start "$placement") ;;     # stale or regressed
        *) exit "$code" ;;
    esac
fi

pesto solve "$profile" -o "$new" --deterministic --time-limit "${TIME_LIMIT:-60}" \
    "${start[@]}" "${summarise[@]}"

code=0
if [[ -e $placement ]]; then
    pesto diff "$placement" "$new" --profile "$profile" --max-regression "$max_regression" \
        --format md "${summarise[@]}" > "${COMMENT:-$work/comment.md}" || code=$?
fi
if [[ $code == 0 ]]; then
    mv "$new" "$placement"
fi
exit "$code"
