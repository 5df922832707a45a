#!/bin/sh
# Runs `npm test`: types and lint beside the tests, which wait for processes and disks.
npm run -s types & types=$!
npm run -s lint & lint=$!
vitest run --project tests "$@"
ended=$?
wait "$types" || { echo "failed: npm run types"; ended=1; }
wait "$lint" || { echo "failed: npm run lint"; ended=1; }
exit "$ended"
