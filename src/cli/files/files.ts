/** `muster files`: files of servers, with the habits of scp and rclone. Read first: `remotePath.ts`. */
import { Command } from "effect/cli"
import { group } from "../shared/command.ts"
import { CommandClient } from "../shared/musterClient.ts"
import { chmod, cp, mkdir, mv, pack, rm } from "./changes.ts"
import { cat, edit } from "./content.ts"
import { get } from "./get.ts"
import { diff, find, ls } from "./listing.ts"
import { put } from "./put.ts"
import { unpack } from "./unpack.ts"

export const files = group("files", {
  short: "List, read, edit, upload and download files of servers",
  description:
    "List, read, edit, upload and download files of servers. SERVER:PATH names a path of a server, as in lobby:/plugins; PATH is in the form of `muster files ls`, with %XX for bytes that are not UTF-8.",
  subcommands: [ls, cat, edit, get, put, rm, mv, cp, mkdir, chmod, pack, unpack, find, diff]
}).pipe(Command.provide(CommandClient))
