/** Programs that people use with SFTP. */
import { execFile } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { debianProgram } from "../../../support/debianPrograms.ts"
import type { Service } from "../../../support/Service.ts"
import { sftpOf } from "./sftp.ts"

export const openssh = debianProgram("sftp", "openssh-client")

/** Runs a program to its end. Fails with what it printed. */
export const run = (path: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) =>
  Effect.callback<string, string>((resume) => {
    const child = execFile(path, args, { env: { ...process.env, ...env } }, (error, stdout, stderr) =>
      resume(error === null ? Effect.succeed(stdout) : Effect.fail(`${error.message}${stdout}${stderr}`))
    )
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** Runs lines of OpenSSH's client, which stops at the first failure. */
export const batch = Effect.fnUntraced(function* (
  muster: Service,
  server: string,
  folder: string,
  lines: ReadonlyArray<string>
) {
  const ask = join(folder, "ask.sh")
  writeFileSync(ask, `#!/bin/sh\necho ${muster.key}\n`, { mode: 0o700 })
  writeFileSync(join(folder, "batch"), `${lines.join("\n")}\n`)
  const options = [
    "BatchMode=no",
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "RekeyLimit=64M"
  ]
  return yield* run(
    openssh.path,
    [
      ...options.flatMap((option) => ["-o", option]),
      ...["-q", "-P", String(sftpOf(muster).port), "-b", join(folder, "batch"), `${server}@127.0.0.1`]
    ],
    { SSH_ASKPASS: ask, SSH_ASKPASS_REQUIRE: "force" }
  )
})
