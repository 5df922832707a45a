/** The images of `deploy`, built without a registry on a base of this machine's Debian and Node.js. */
import { cpSync, existsSync, mkdirSync, readFileSync, realpathSync, symlinkSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Context, Effect, Layer } from "effect"
import { startChild } from "../support/child.ts"
import { debootstrap, installDebian } from "../support/debian.ts"
import { type DebianProgram, debianProgram } from "../support/debianPrograms.ts"
import { engineNote, TestEngine, withEngine } from "../support/dockerEngine.ts"
import { ServiceFailed } from "../support/Service.ts"
import { temporaryFolder, temporaryFolderIn } from "../support/temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")
export const NODE_IMAGE = "muster-test/node:26"
export const MUSTER_IMAGE = "muster-test/muster:1"
/** Stands in for the images `caddy` and `postgres`. */
export const OTHER_IMAGE = "muster-test/others:1"

export const dockerProgram = debianProgram("docker", "docker.io")
const composeProgram = debianProgram("docker-compose", "docker-compose")
const programs: ReadonlyArray<DebianProgram> = [dockerProgram, composeProgram, debootstrap]
const isRoot = process.getuid?.() === 0

/** Tests of images run if an engine and these programs are available; in CI they are required. */
export const withImages =
  withEngine && programs.every(({ run }) => run) && (isRoot || process.env.CI !== undefined)
export const imagesNote = [
  engineNote,
  ...programs.map(({ note }) => note),
  isRoot ? "" : " (needs root)"
].join("")

/** Runs a program to its end; returns its standard output. */
export const run = Effect.fnUntraced(function* (
  command: readonly [string, ...ReadonlyArray<string>],
  env: Readonly<Record<string, string>> = {},
  within: `${number} seconds` = "120 seconds",
  cwd = root
) {
  const child = yield* startChild(command, { cwd, env })
  const code = yield* child.exited(within)
  if (code === 0) return child.stdout()
  return yield* new ServiceFailed({
    message: `${command.join(" ")}: ${code}: ${child.output().slice(-4000)}`
  })
}, Effect.scoped)

/** Imports Debian with the Node.js and npm of this checkout, in place of `node:26-bookworm-slim`. */
const importNode = Effect.fnUntraced(function* (
  docker: (...args: ReadonlyArray<string>) => Effect.Effect<string, ServiceFailed>
) {
  const folder = yield* temporaryFolderIn("/tmp", 0o755)
  const base = join(folder, "root")
  const release = /^VERSION_CODENAME=(.*)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "stable"
  yield* installDebian(release, base, ["ca-certificates", "libatomic1"])
  const npm = dirname(dirname(realpathSync(debianProgram("npm", "npm").path)))
  const local = join(base, "usr/local")
  mkdirSync(join(local, "lib/node_modules"), { recursive: true })
  cpSync(realpathSync(join(root, "node_modules/.bin/node")), join(local, "bin/node"))
  cpSync(npm, join(local, "lib/node_modules/npm"), { recursive: true })
  symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(local, "bin/npm"))
  const authorities = "/etc/ssl/certs/ca-certificates.crt"
  if (existsSync(authorities)) cpSync(authorities, join(base, authorities))
  const tar = join(folder, "root.tar")
  yield* run(["tar", "-C", base, "--exclude=./var/cache/apt/archives/*.deb", "-cf", tar, "."])
  yield* docker("import", "-c", `ENV NODE_EXTRA_CA_CERTS=${authorities}`, tar, NODE_IMAGE)
}, Effect.scoped)

/** The engine with the images, and commands on it. */
export class Images extends Context.Service<
  Images,
  {
    readonly docker: (...args: ReadonlyArray<string>) => Effect.Effect<string, ServiceFailed>
    /** Runs a script in which `docker` and `docker-compose` use the engine. */
    readonly shell: (
      script: string,
      folder: string,
      env: Readonly<Record<string, string>>
    ) => Effect.Effect<string, ServiceFailed>
  }
>()("test/deploy/Images") {
  /** @param printed the command that builds the image, as documented */
  static readonly layer = (printed: string) =>
    Layer.effect(
      Images,
      Effect.gen(function* () {
        const { socket } = yield* TestEngine
        const home = yield* temporaryFolder
        const env = { DOCKER_HOST: `unix://${socket}`, DOCKER_CONFIG: home, DOCKER_BUILDKIT: "0" }
        const docker = (...args: ReadonlyArray<string>) =>
          run([dockerProgram.path, ...args], env, "300 seconds")
        yield* Effect.addFinalizer(() =>
          Effect.ignore(docker("image", "rm", "--force", MUSTER_IMAGE, OTHER_IMAGE, NODE_IMAGE))
        )
        yield* importNode(docker)
        // The network of the host: registries may be reachable from there only.
        const build = `${dockerProgram.path} build --network=host --build-arg=NODE_IMAGE=${NODE_IMAGE}`
        const command = printed
          .replace("docker build", () => build)
          .replace("-t muster", `-t ${MUSTER_IMAGE}`)
        yield* run(["sh", "-ec", command], env, "300 seconds")
        const others = join(import.meta.dirname, "images")
        yield* docker("build", "--network=host", "-t", OTHER_IMAGE, others)
        return {
          docker,
          shell: (script, cwd, own) => run(["bash", "-ec", script], { ...env, ...own }, "300 seconds", cwd)
        }
      })
    ).pipe(Layer.provideMerge(TestEngine.layer))
}
