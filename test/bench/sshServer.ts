/** OpenSSH's own server with a key that is used once, on a port of this machine: the baseline of SFTP. */
import { execFileSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { connect } from "node:net"
import { userInfo } from "node:os"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { debianProgram } from "../support/debianPrograms.ts"
import { freePort } from "../support/nodes.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, poll, startProcess } from "./harness.ts"

const sshd = debianProgram("sshd", "openssh-server")
const keygen = debianProgram("ssh-keygen", "openssh-client")

/** What OpenSSH's client needs to log in. */
export interface SftpTarget {
  readonly port: number
  readonly user: string
  /** Options of the client. */
  readonly options: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  /** The path of a name on the server. */
  readonly at: (name: string) => string
}

const listens = (port: number) =>
  Effect.callback<true | undefined>((resume) => {
    const socket = connect(port, "127.0.0.1")
    socket.once("connect", () => resume(Effect.succeed(true)))
    socket.once("error", () => resume(Effect.succeed(undefined)))
    return Effect.sync(() => socket.destroy())
  })

/** Starts the server; paths are those of `folder`. @error BenchFailed it is not installed, or does not listen */
export const startSshServer: (folder: string) => Effect.Effect<SftpTarget, BenchFailed, Scope.Scope> =
  Effect.fnUntraced(function* (folder: string) {
    if (!sshd.run || !keygen.run)
      return yield* new BenchFailed({ message: `OpenSSH${sshd.note}${keygen.note}` })
    const own = yield* temporaryFolder
    const [host, key] = [join(own, "host"), join(own, "key")]
    for (const file of [host, key]) execFileSync(keygen.path, ["-q", "-t", "ed25519", "-N", "", "-f", file])
    const port = yield* freePort
    const settings = {
      ListenAddress: `127.0.0.1:${port}`,
      HostKey: host,
      AuthorizedKeysFile: `${key}.pub`,
      PidFile: "none",
      StrictModes: "no",
      UsePAM: "no",
      PermitRootLogin: "yes",
      PasswordAuthentication: "no",
      Subsystem: "sftp internal-sftp"
    }
    const lines = Object.entries(settings).map(([name, value]) => `${name} ${value}\n`)
    writeFileSync(join(own, "config"), lines.join(""))
    // Debian's server needs this folder, which its unit makes.
    if (process.getuid?.() === 0) execFileSync("mkdir", ["-p", "/run/sshd"])
    yield* startProcess(sshd.path, ["-D", "-f", join(own, "config")])
    yield* poll("sshd listens", listens(port))
    return {
      port,
      user: userInfo().username,
      options: [`IdentityFile=${key}`, "IdentitiesOnly=yes", "BatchMode=yes"],
      env: {},
      at: (name) => join(folder, name)
    }
  })
