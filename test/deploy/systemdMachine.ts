/** A container whose process 1 is systemd, with the programs of this machine and this checkout in /opt/muster. */
import { chmodSync, cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { Effect } from "effect"
import { debianProgram } from "../support/debianPrograms.ts"
import { engineNote, TestEngine, withEngine } from "../support/dockerEngine.ts"
import { eventually } from "../support/eventually.ts"
import { temporaryFolder, temporaryFolderIn } from "../support/temporaryFolder.ts"
import { dockerProgram, run } from "./images.ts"

const root = resolve(import.meta.dirname, "../..")
const IMAGE = "muster-test/systemd:1"
const systemd = debianProgram("systemd-analyze", "systemd")
const isRoot = process.getuid?.() === 0

/** Machines run if an engine and systemd are available to root; in CI they are required. */
export const withMachines =
  withEngine && dockerProgram.run && systemd.run && (isRoot || process.env.CI !== undefined)
export const machinesNote = `${engineNote}${dockerProgram.note}${systemd.note}${isRoot ? "" : " (needs root)"}`

/** The commands of the package, as npm installs them. */
const MUSTER = `#!/bin/sh
exec /opt/muster/node_modules/.bin/node /srv/muster/dist/main.js "$@"
`

/** Writes a root folder without programs, and without the services of this machine; returns its path. */
const rootFolder = Effect.gen(function* () {
  const base = join(yield* temporaryFolderIn("/tmp", 0o755), "root")
  for (const name of [
    "usr",
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "srv/muster",
    "var/log/journal",
    "var/lib"
  ]) {
    mkdirSync(join(base, name), { recursive: true })
  }
  for (const name of ["bin", "lib", "lib64", "sbin"]) symlinkSync(`usr/${name}`, join(base, name))
  // `cp` keeps the modes of the files with users.
  yield* run(["cp", "-a", "/etc", join(base, "etc")])
  for (const name of ["systemd/system", "init.d", "fstab", "machine-id", "muster"]) {
    rmSync(join(base, "etc", name), { recursive: true, force: true })
  }
  writeFileSync(join(base, "etc/machine-id"), "")
  mkdirSync(join(base, "etc/systemd/system"), { recursive: true })
  const modules = join(base, "opt/muster/node_modules")
  mkdirSync(join(modules, ".bin"), { recursive: true })
  symlinkSync("/srv/muster/node_modules/.bin/node", join(modules, ".bin/node"))
  writeFileSync(join(modules, ".bin/muster"), MUSTER)
  chmodSync(join(modules, ".bin/muster"), 0o755)
  cpSync(join(root, "deploy"), join(modules, "muster/deploy"), { recursive: true })
  return base
})

/**
 * Starts systemd with a cgroup v2 of its own. Hosts with cgroup v1 have an empty v2 besides, without controllers: there
 * the container gets a group in it.
 */
const bootIn = (group: string) => `
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
if grep -q :memory: /proc/self/cgroup; then
  mkdir /sys/fs/cgroup/${group}
  echo $$ > /sys/fs/cgroup/${group}/cgroup.procs
fi
umount /sys/fs/cgroup
exec unshare --cgroup sh -ec 'mount -t cgroup2 none /sys/fs/cgroup; exec /lib/systemd/systemd'
`

/** All rights of a container but one that the test environment may lack, and no filter. */
const rights = [
  ...["--cap-add=ALL", "--cap-drop=SYS_RESOURCE"],
  ...["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"].map(
    (option) => `--security-opt=${option}`
  )
]

let machines = 0

/** Boots a machine until the scope closes; returns how to run scripts of bash in it. */
export const bootMachine = Effect.gen(function* () {
  const { socket } = yield* TestEngine
  const env = { DOCKER_HOST: `unix://${socket}`, DOCKER_CONFIG: yield* temporaryFolder }
  const docker = (...args: ReadonlyArray<string>) => run([dockerProgram.path, ...args], env)
  const name = `muster-test-systemd-${process.pid}-${++machines}`
  const base = yield* rootFolder
  const tar = `${base}.tar`
  yield* run(["tar", "-C", base, "-cf", tar, "."])
  yield* docker("import", tar, IMAGE)
  const removeGroup = run(["sh", "-c", `find /sys/fs/cgroup/unified/${name} -depth -type d -exec rmdir {} +`])
  yield* Effect.addFinalizer(() =>
    Effect.ignore(docker("rm", "--force", "--volumes", name)).pipe(
      Effect.andThen(Effect.ignore(removeGroup)),
      Effect.andThen(Effect.ignore(docker("image", "rm", "--force", IMAGE)))
    )
  )
  // Volumes, because an overlay cannot be below another, nor show files as those of another user.
  const folders = ["--volume=/var/lib/muster", "--volume=/var/lib/muster-node"]
  const host = ["--volume=/usr:/usr:ro", `--volume=${root}:/srv/muster:ro`]
  const temporary = ["--tmpfs=/run:exec", "--tmpfs=/run/lock", "--tmpfs=/tmp:exec"]
  yield* docker(
    ...["run", "--detach", "--tty", `--name=${name}`, "--network=none", "--env=container=docker"],
    ...[...rights, ...host, ...folders, ...temporary],
    ...[IMAGE, "sh", "-ec", bootIn(name)]
  )
  const path = "PATH=/opt/muster/node_modules/.bin:/usr/sbin:/usr/bin:/sbin:/bin"
  const shell = (script: string) => docker("exec", `--env=${path}`, name, "bash", "-ec", script)
  /** Repeats a script until it succeeds. */
  const succeeds = (script: string) => {
    const problem = Effect.match(shell(script), { onFailure: ({ message }) => message, onSuccess: () => "" })
    return eventually(problem, (message) => message === "", "60 seconds")
  }
  yield* succeeds("systemctl is-system-running | grep -E 'running|degraded'")
  return { shell, succeeds }
})
