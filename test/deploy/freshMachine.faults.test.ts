import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { plainEnv, runToEnd, startChild } from "../support/child.ts"
import { debootstrap, installDebian } from "../support/debian.ts"
import { printed, root } from "../support/docs.ts"
import { freeAllocations, freePorts } from "../support/ports.ts"
import { requestTo } from "../support/Service.ts"
import { becomes, create } from "../support/servers.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"
import { run } from "./images.ts"

const isRoot = process.getuid?.() === 0
const runs = debootstrap.run && (isRoot || process.env.CI !== undefined)
const note = `${debootstrap.note}${isRoot ? "" : " (needs root)"}`

/** The oldest and the newest release of Debian and of Node.js, and the npm of that Node.js. */
const MACHINES = [
  { debian: "bookworm", node: "20", npm: "10" },
  { debian: "trixie", node: "24", npm: "11" }
] as const

/** What a clone does not have. */
const MADE = new Set(["node_modules", "dist", "data", ".git"])

/** Tests without deadlines, some of them on PostgreSQL; all would take too long here. */
const SOME = "test/contract test/controlPlane/store/journal"
/** The machine that runs them. */
const TESTED = "bookworm"

const AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"

/** Unpacks a package of the registry into a folder. */
const unpacked = (name: string, folder: string) =>
  run(
    ["sh", "-ec", `npm pack -s "${name}" > /dev/null; mkdir unpacked; tar -xzf *.tgz -C unpacked`],
    {},
    "120 seconds",
    folder
  )

/** A minimal Debian with a Node.js, its npm, and a clone of Muster in `/root/muster`; returns its root folder. */
const freshMachine = Effect.fnUntraced(function* (machine: (typeof MACHINES)[number]) {
  const folder = yield* temporaryFolderIn("/tmp", 0o755)
  const base = join(folder, "root")
  yield* installDebian(machine.debian, base)
  const local = join(base, "usr/local")
  const parts = { node: join(folder, "node"), npm: join(folder, "npm") }
  for (const part of Object.values(parts)) mkdirSync(part)
  yield* unpacked(`node-linux-${process.arch}@${machine.node}`, parts.node)
  yield* unpacked(`npm@${machine.npm}`, parts.npm)
  mkdirSync(join(local, "lib/node_modules"), { recursive: true })
  cpSync(join(parts.node, "unpacked/package/bin/node"), join(local, "bin/node"))
  cpSync(join(parts.npm, "unpacked/package"), join(local, "lib/node_modules/npm"), { recursive: true })
  symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(local, "bin/npm"))
  for (const file of ["/etc/resolv.conf", "/etc/hosts"]) cpSync(file, join(base, file))
  mkdirSync(join(base, "etc/ssl/certs"), { recursive: true })
  if (existsSync(AUTHORITIES)) cpSync(AUTHORITIES, join(base, AUTHORITIES))
  cpSync(root, join(base, "root/muster"), { recursive: true, filter: (path) => !MADE.has(basename(path)) })
  return base
})

/** The command that runs a script on the machine, with processes and a root of its own. */
const onMachine = (base: string, script: string) => {
  const file = "/root/script"
  writeFileSync(join(base, file), script)
  // Isolation needs a root folder that is a mount, and that no process has left: `chroot` alone forbids namespaces of users.
  const mounts = `mount --bind "${base}" "${base}" && cd "${base}" && mount -t proc proc proc && mount --rbind /dev dev && mount -t sysfs sys sys`
  const inside = `${mounts} && pivot_root . mnt && umount -l mnt && cd / && exec sh -e ${file}`
  return [
    ...["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private"],
    ...["sh", "-ec", inside]
  ] as const
}

/** Nothing of the machine of the test apart from its registry and authorities. */
const env = {
  ...plainEnv(),
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  HOME: "/root",
  npm_config_cache: "/root/.npm",
  ...(existsSync(AUTHORITIES) ? { NODE_EXTRA_CA_CERTS: AUTHORITIES } : {})
}

/** Installs the missing package, and starts a server by the first command. */
const startServer = Effect.fnUntraced(function* (base: string) {
  const [needed] = printed("README.md", "packages").split("\n")
  const port = yield* freePorts(1)
  const first = printed("README.md", "start")
  const script = `export DEBIAN_FRONTEND=noninteractive\n${needed?.replace("sudo ", "")}\ncd /root/muster\n${first}`
  const child = yield* startChild(onMachine(base, script), {
    cwd: "/",
    env: { ...env, ...(yield* freeAllocations(4)), MUSTER_PORT: String(port) }
  })
  const [, url = ""] = yield* child.prints(/listens on (http:\S+)[\s\S]*\/docs/, "300 seconds")
  const key = readFileSync(join(base, "root/muster/data/admin.key"), "utf8").trim()
  const api = { request: requestTo(url, key) }
  const id = yield* create(api, "demo-saved", { start: true })
  yield* becomes(api, id, "running")
}, Effect.scoped)

describe.runIf(runs)(`README: a fresh machine${note}`, () => {
  for (const machine of MACHINES) {
    it.live(
      `minimal Debian ${machine.debian} with Node.js ${machine.node}: \`npm ci\` names the package that is missing; with it, the first command starts a service that runs a server${machine.debian === TESTED ? ", and the second one runs tests" : ""}`,
      () =>
        Effect.gen(function* () {
          const base = yield* freshMachine(machine)
          const install = onMachine(base, "cd /root/muster\nnpm ci\n")
          const lacking = yield* Effect.flip(runToEnd(install, { cwd: "/", env }, "240 seconds"))
          assert.match(lacking.message, /^muster: Node\.js 26 needs libatomic\.so\.1.*: install libatomic1 /m)

          yield* startServer(base)
          if (machine.debian !== TESTED) return
          const second = `cd /root/muster\n${printed("README.md", "test").trim()} -- ${SOME}\n`
          yield* runToEnd(onMachine(base, second), { cwd: "/", env }, "600 seconds")
        }).pipe(Effect.scoped),
      900_000
    )
  }
})
