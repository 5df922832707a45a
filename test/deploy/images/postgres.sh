#!/bin/sh
# Stands in for the entry point of the image `postgres`: makes the database of the variables, then runs the server.
set -e
data=/var/lib/postgresql/data
mkdir -p "$data" /run/postgresql
chown postgres "$data" /run/postgresql
if [ ! -e "$data/PG_VERSION" ]; then
  install -o postgres -m 0400 "$POSTGRES_PASSWORD_FILE" /tmp/password
  setpriv --reuid postgres --regid postgres --clear-groups sh -ec '
    initdb -D "$0" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 --no-instructions
    echo "host all all all scram-sha-256" >> "$0/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$0" postgres' "$data"
fi
exec setpriv --reuid postgres --regid postgres --clear-groups postgres -D "$data" -c "listen_addresses=*"
