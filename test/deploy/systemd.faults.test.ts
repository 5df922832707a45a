import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { nodeSettings } from "../../src/shared/config/node.ts"
import { settings } from "../../src/shared/config/service.ts"
import { startChild } from "../support/child.ts"
import { debianProgram } from "../support/debianPrograms.ts"
import { TestEngine } from "../support/dockerEngine.ts"
import { printed } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freeAllocations, freePorts } from "../support/ports.ts"
import { endLeftovers } from "../support/processes.ts"
import { adminKey, requestTo } from "../support/Service.ts"
import { becomes, create, expectStatus } from "../support/servers.ts"
import { temporaryFolder, temporaryFolderIn } from "../support/temporaryFolder.ts"
import { bootMachine, machinesNote, withMachines } from "./systemdMachine.ts"

const root = resolve(import.meta.dirname, "../..")
const folder = join(root, "deploy/systemd")
const analyze = debianProgram("systemd-analyze", "systemd")
const setpriv = debianProgram("setpriv", "util-linux")
const units = ["muster.service", "muster-node.service", "muster-single.service"] as const
const sockets = ["muster.socket", "muster-node.socket", "muster-single.socket"] as const
const textOf = (name: string) => readFileSync(join(folder, name), "utf8")

/** The values of a directive, in order. */
const valuesOf = (unit: string, directive: string) =>
  unit
    .split("\n")
    .flatMap((line) => (line.startsWith(`${directive}=`) ? [line.slice(directive.length + 1)] : []))

/** Runs a program to its end; returns its code and output. */
const ran = Effect.fnUntraced(function* (command: readonly [string, ...ReadonlyArray<string>]) {
  const child = yield* startChild(command, { cwd: root })
  const code = yield* child.exited("60 seconds")
  return { code, output: child.output() }
}, Effect.scoped)

/** A root folder with the units and the command that they start. */
const installed = Effect.gen(function* () {
  const target = yield* temporaryFolder
  const unitFolder = join(target, "etc/systemd/system")
  mkdirSync(unitFolder, { recursive: true })
  for (const name of [...units, ...sockets]) {
    const text = textOf(name).replaceAll("/opt/muster/node_modules/.bin/muster", join(target, "muster"))
    writeFileSync(join(unitFolder, name), text)
  }
  cpSync("/bin/true", join(target, "muster"))
  return unitFolder
})

describe.runIf(analyze.run)(`deploy/systemd: the units${analyze.note}`, () => {
  it.live.each([...units, ...sockets])("systemd-analyze verify finds nothing in %s", (name) =>
    Effect.gen(function* () {
      const unitFolder = yield* installed
      const { code, output } = yield* ran([analyze.path, "verify", "--man=no", join(unitFolder, name)])
      assert.deepStrictEqual({ code, output }, { code: 0, output: "" })
      // The check can fail.
      writeFileSync(
        join(unitFolder, "muster.service"),
        textOf("muster.service").replace("Type=exec", "Typ=exec")
      )
      const wrong = yield* ran([analyze.path, "verify", "--man=no", join(unitFolder, "muster.service")])
      assert.include(wrong.output, "Typ")
    }).pipe(Effect.scoped)
  )

  // Tenths; the daemon needs mounts, namespaces and users.
  it.live.each([
    ["muster.service", 15],
    ["muster-node.service", 70],
    ["muster-single.service", 70]
  ] as const)("systemd-analyze security rates %s at %d tenths at most", ([name, threshold]) =>
    Effect.gen(function* () {
      const unitFolder = yield* installed
      const rate = (limit: number) =>
        ran([analyze.path, "security", "--offline=true", `--threshold=${limit}`, join(unitFolder, name)])
      const rated = yield* rate(threshold)
      assert.strictEqual(rated.code, 0, rated.output)
      assert.notStrictEqual((yield* rate(5)).code, 0)
    }).pipe(Effect.scoped)
  )
})

describe("docs/deployment.md, Install with systemd: the ports", () => {
  it.each(units)("systemd holds the port of %s: the unit needs its socket, and both are enabled", (name) => {
    const socket = name.replace(".service", ".socket")
    assert.deepStrictEqual(valuesOf(textOf(name), "Requires"), [socket])
    assert.deepStrictEqual(valuesOf(textOf(name), "Also"), [socket])
    assert.lengthOf(valuesOf(textOf(socket), "ListenStream"), 1)
    assert.deepStrictEqual(valuesOf(textOf(socket), "WantedBy"), ["sockets.target"])
  })
})

describe("deploy/systemd: a daemon with the rights of its unit", () => {
  it("both units with a daemon have the same rights", () => {
    const rights = (name: string) => /^Restart=[\s\S]*(?=^\[Install\])/m.exec(textOf(name))?.[0] ?? name
    assert.strictEqual(rights("muster-node.service"), rights("muster-single.service"))
  })

  it.live.runIf(process.getuid?.() === 0 || process.env.CI !== undefined)(
    "servers are isolated by user and namespaces, with mapped owners, and run",
    () =>
      Effect.gen(function* () {
        const unit = textOf("muster-single.service")
        const capabilities = valuesOf(unit, "CapabilityBoundingSet").join(" ").split(" ")
        assert.isAbove(capabilities.length, 5)
        const bounding = capabilities.map((name) => `+${name.replace("CAP_", "").toLowerCase()}`).join(",")
        assert.deepStrictEqual(valuesOf(unit, "NoNewPrivileges"), ["yes"])
        const dataDir = join(yield* temporaryFolderIn("/tmp", 0o711), "data")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const main = [join(root, "node_modules/.bin/node"), join(root, "dist/main.js"), "serve"]
        const child = yield* startChild(
          [setpriv.path, "--no-new-privs", `--bounding-set=-all,${bounding}`, "--", ...main],
          {
            cwd: root,
            env: {
              ...(yield* freeAllocations(2)),
              APP_ADMIN_API_KEY: adminKey,
              MUSTER_PORT: String(yield* freePorts(1)),
              MUSTER_DATA_DIR: dataDir,
              MUSTER_EMBEDDED_RUNTIME: "process",
              MUSTER_PROCESS_ISOLATION: "required"
            }
          }
        )
        const [, url = ""] = yield* child.prints(/listens on (http:\S+)/)
        const api = { request: requestTo(url, adminKey) }
        const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
        const { json } = yield* expectStatus(api, 200, "GET", `/api/nodes/${node.id}/system`)
        assert.strictEqual(json.system.isolation.process, "user+namespaces")
        assert.notInclude(child.output(), "CAP_SYS_ADMIN")
        const id = yield* create(api, "demo-saved", { start: true })
        yield* becomes(api, id, "running")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        yield* child.signal("SIGTERM")
        assert.strictEqual(yield* child.exited(), 0)
      }).pipe(Effect.scoped)
  )
})

describe.runIf(withMachines)(`docs/deployment.md, Install with systemd: under systemd${machinesNote}`, () => {
  layer(TestEngine.layer, { excludeTestServices: true, timeout: "120 seconds" })((it) => {
    const server = "pgrep -f '^node server.mjs$'"
    /** The daemons of other tests see the processes of the machine, but not its claims on uids. */
    const ownUids = (file: string) => `echo MUSTER_PROCESS_UIDS=90000-90999 >> /etc/muster/${file}`

    /** The unit of a daemon with a server: the isolation of the server, and its life while the daemon restarts. */
    const serverOutlives = Effect.fnUntraced(function* (
      { shell, succeeds }: Effect.Success<typeof bootMachine>,
      unit: string,
      muster: string
    ) {
      yield* shell(`${muster} servers create demo-saved --name one --start --wait`)
      const pid = (yield* shell(server)).trim()
      const isolation = yield* shell(
        [
          `main=$(systemctl show --value --property=MainPID ${unit})`,
          `grep -E '^(Uid|CapEff|NoNewPrivs):' /proc/${pid}/status`,
          `for name in mnt pid ipc; do cmp <(readlink /proc/$main/ns/$name) <(readlink /proc/${pid}/ns/$name) > /dev/null || echo own $name; done`
        ].join("\n")
      )
      assert.match(isolation, /^Uid:\t[1-9]\d*\t/m)
      assert.match(isolation, /^CapEff:\t0+$/m)
      assert.match(isolation, /^NoNewPrivs:\t1$/m)
      assert.match(isolation, /own mnt\nown pid\nown ipc\n$/)
      const controllers = yield* shell("cat /sys/fs/cgroup/cgroup.controllers")
      assert.strictEqual(
        (yield* shell(`cat /proc/${pid}/cgroup`)).includes("::/muster/"),
        controllers.includes("memory")
      )
      const lives = Effect.gen(function* () {
        yield* succeeds(`${muster} servers send one say hello`)
        yield* succeeds(`${muster} servers logs one | grep -F '[Server] hello'`)
        assert.strictEqual((yield* shell(server)).trim(), pid)
      })
      yield* shell(`systemctl restart ${unit}`)
      yield* lives
      yield* shell(`systemctl kill --signal=KILL --kill-whom=main ${unit}`)
      yield* eventually(
        shell(`systemctl show --value --property=NRestarts,SubState ${unit}`),
        (state) => state === "1\nrunning\n"
      )
      yield* lives
      // The control plane calls the node meanwhile: with the socket alone, systemd would start the unit.
      yield* shell(`systemctl stop ${unit.replace(".service", ".socket")} ${unit}`)
      assert.strictEqual(
        yield* shell(`systemctl show --value --property=Result,ExecMainStatus ${unit}`),
        "success\n0\n"
      )
      assert.strictEqual((yield* shell(server)).trim(), pid)
      yield* shell(`systemctl start ${unit}`)
      yield* lives
      yield* shell(`systemctl reload ${unit}`)
      yield* eventually(shell(`journalctl --unit=${unit} --output=cat`), (lines) =>
        lines.includes("SIGHUP: ")
      )
      yield* shell(`${muster} servers stop one --wait`)
      assert.strictEqual(yield* shell(`${server} || true`), "")
      assert.strictEqual(yield* shell("systemctl --failed --plain --no-legend"), "")
    })

    it.effect(
      "muster.service and muster-node.service, as printed: servers are isolated, and outlive both units",
      () =>
        Effect.gen(function* () {
          const machine = yield* bootMachine
          const { shell, succeeds } = machine
          const muster =
            "cd /var/lib/muster; runuser -u muster -- env MUSTER_DATA_DIR=data /opt/muster/node_modules/.bin/muster"
          yield* shell(printed("docs/deployment.md", "units"))
          // A reload at once is not the end of the service.
          yield* shell(
            "systemctl daemon-reload; systemctl enable --now muster.service; systemctl reload muster.service"
          )
          yield* succeeds("journalctl --unit=muster.service | grep 'listens on'")
          yield* shell(`${muster} init; systemctl reload muster.service`)
          yield* shell(`${muster} keys create --name alpha --scope Node > /etc/muster/node.key`)
          const address = "s,https://muster.example.com,http://127.0.0.1:5620,; s,10.0.0.7,127.0.0.1,"
          yield* shell(
            `chmod 600 /etc/muster/node.key; sed -i '${address}' /etc/muster/node.env; ${ownUids("node.env")}; systemctl enable --now muster-node.service`
          )
          yield* succeeds(`${muster} nodes list | grep connected`)
          yield* serverOutlives(machine, "muster-node.service", muster)
          yield* shell("systemctl stop muster.service")
          assert.match(
            yield* shell("journalctl --unit=muster.service --output=cat"),
            /"the service has ended"[^\n]*\n/
          )
        }).pipe(Effect.scoped),
      120_000
    )

    it.effect(
      "muster-single.service, as printed: servers are isolated, and outlive the unit",
      () =>
        Effect.gen(function* () {
          const machine = yield* bootMachine
          const { shell, succeeds } = machine
          const muster = "cd /var/lib/muster; MUSTER_DATA_DIR=data muster"
          yield* shell(printed("docs/deployment.md", "units"))
          yield* shell(
            [
              "sed -i 's,^#\\(MUSTER_EMBEDDED_ALLOCATIONS=\\)192.168.1.20,\\1127.0.0.1,; s,^#\\(MUSTER_PROCESS_ISOLATION\\),\\1,' /etc/muster/muster.env",
              ownUids("muster.env"),
              `(${muster} init)`,
              "systemctl daemon-reload; systemctl enable --now muster-single.service"
            ].join("\n")
          )
          yield* succeeds(`${muster} nodes list`)
          yield* serverOutlives(machine, "muster-single.service", muster)
        }).pipe(Effect.scoped),
      120_000
    )
  })
})

describe("deploy: settings", () => {
  const known = new Set([...Object.values(settings), ...Object.values(nodeSettings)].map(({ name }) => name))
  const named = (text: string) =>
    [...text.matchAll(/\b(MUSTER_[A-Z_]+)(?==|: )/g)].map(([, name = ""]) => name)

  it.each(["systemd/muster.env", "systemd/node.env", ...units.map((name) => `systemd/${name}`)])(
    "%s has settings that exist",
    (path) => {
      const names = named(readFileSync(join(root, "deploy", path), "utf8"))
      assert.isNotEmpty(names)
      assert.deepStrictEqual(
        names
          .map((name) => name.replace(/_FILE$/, ""))
          .filter((name) => !known.has(name) && !known.has(`${name}_FILE`)),
        []
      )
    }
  )
})
