/** `muster sftp`: passwords for SFTP, and OpenSSH's client with one of them (spec 10.6). */
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Option } from "effect"
import { Command } from "effect/cli"
import type { SftpAddress, SftpLogin } from "../contract/api/SftpGroup.ts"
import { io } from "../daemon/disk/fsio.ts"
import { commandSettings } from "../shared/config/command.ts"
import { command, switchFlag } from "./shared/command.ts"
import { CommandError, wrongUsage } from "./shared/failures.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { optionalServerArgument, serverNamed } from "./shared/named.ts"
import { type Listing, outputFlags, printOne } from "./shared/output.ts"
import { runProgram } from "./shared/terminal.ts"

const hostText = ({ host }: SftpAddress) => (host.includes(":") ? `[${host}]` : host)

const addressListing: Listing<SftpAddress> = {
  columns: {
    fingerprint: ({ fingerprint }) => fingerprint,
    address: (address) => `${hostText(address)}:${address.port}`,
    "host key": ({ host_key }) => host_key
  }
}

const loginListing: Listing<SftpLogin> = {
  id: ({ password }) => password,
  columns: {
    address: (login) => `sftp://${login.username}@${hostText(login)}:${login.port}`,
    host: ({ host }) => host,
    port: ({ port }) => String(port),
    username: ({ username }) => username,
    password: ({ password }) => password,
    fingerprint: ({ fingerprint }) => fingerprint,
    "valid until": ({ expires_at }) => expires_at
  }
}

const address = ask((muster) => muster.system.info({ query: { include: "sftp" } })).pipe(
  Effect.flatMap(({ sftp }) =>
    sftp === undefined || sftp === null
      ? CommandError.refused("SFTP is off: set MUSTER_SFTP_PORT and start the service again.")
      : Effect.succeed(sftp)
  )
)

/** Makes a folder of this user with what OpenSSH's client reads: the password is in no argument and no variable. */
const prepare = Effect.fnUntraced(function* ({ host, host_key, password, port }: SftpLogin) {
  const folder = yield* Effect.acquireRelease(
    io("make a folder for the password", () => mkdtemp(join(tmpdir(), "muster-sftp-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
  )
  const at = (name: string) => join(folder, name)
  const write = (name: string, text: string, mode: number) =>
    io(`write ${at(name)}`, () => writeFile(at(name), text, { mode }))
  yield* write("password", `${password}\n`, 0o600)
  yield* write("ask", '#!/bin/sh\nexec cat "$(dirname "$0")/password"\n', 0o700)
  yield* write("known_hosts", `[${host}]:${port} ${host_key}\n`, 0o600)
  return { ask: at("ask"), knownHosts: at("known_hosts") }
})

/** Runs OpenSSH's client until it ends. */
const connect = Effect.fnUntraced(function* (login: SftpLogin) {
  const files = yield* prepare(login)
  const options = [
    "PreferredAuthentications=password",
    "NumberOfPasswordPrompts=1",
    "StrictHostKeyChecking=yes",
    `UserKnownHostsFile=${files.knownHosts}`
  ]
  const args = [
    ...options.flatMap((option) => ["-o", option]),
    ...["-P", String(login.port), `${login.username}@${hostText(login)}`]
  ]
  const ended = yield* runProgram("sftp, the client of OpenSSH", "sftp", args, {
    ...process.env,
    SSH_ASKPASS: files.ask,
    SSH_ASKPASS_REQUIRE: "force"
  })
  if (ended !== "") return yield* CommandError.failed(`sftp has ended with ${ended}.`)
}, Effect.scoped)

/** `muster sftp [SERVER]` (spec 10.6). */
export const sftp = command("sftp", {
  description:
    "Make a password for the files of a server over SFTP, with the rights of your key. The password opens connections for 15 minutes, and a connection lasts 12 hours at most. Without a server, show where SFTP listens and the fingerprint of its host key.",
  short: "Make a password for SFTP, or show the host key",
  settings: commandSettings,
  examples: {
    "muster sftp": "The fingerprint, to compare at the first connection",
    "muster sftp lobby": "Address, user name and password for an SFTP program",
    "muster sftp --connect lobby": "Connect with OpenSSH's sftp"
  },
  input: {
    server: optionalServerArgument,
    connect: switchFlag("connect", "Run sftp with the password, in place of printing it"),
    ...outputFlags
  },
  *run({ connect: isConnecting, server, ...flags }) {
    if (Option.isNone(server)) {
      if (isConnecting) return yield* wrongUsage("--connect needs a server.")
      return yield* printOne(flags, addressListing, yield* address)
    }
    const { id } = yield* serverNamed(server.value)
    const login = yield* ask((muster) => muster.sftp.login({ params: { server: id } }))
    return yield* isConnecting ? connect(login) : printOne(flags, loginListing, login)
  }
}).pipe(Command.provide(CommandClient))
