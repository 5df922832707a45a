/** `muster backups targets`: where backups are stored (spec 12.6). */
import { Console, Effect, Option } from "effect"
import type { BackupTargetView } from "../../contract/domain/BackupTarget.ts"
import { choiceFlag, command, given, group, switchFlag, textArgument, textFlag } from "../shared/command.ts"
import { CommandError, wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { nodeNamed } from "../shared/named.ts"
import { type Listing, listCommand, outputFlags, printOne, wide } from "../shared/output.ts"
import { confirm, lineIn, yesFlag } from "../shared/terminal.ts"

const s3 =
  (read: (target: Extract<BackupTargetView, { readonly type: "s3" }>) => string | undefined) =>
  (target: BackupTargetView) =>
    target.type === "s3" ? (read(target) ?? "") : ""

const listing: Listing<BackupTargetView> = {
  columns: {
    id: ({ id }) => id,
    type: ({ type }) => type,
    bucket: s3(({ bucket }) => bucket),
    folder: (target) => ("folder" in target ? target.folder : ""),
    endpoint: s3(({ endpoint }) => endpoint),
    source: ({ source }) => source,
    prefix: wide(s3(({ prefix }) => prefix)),
    region: wide(s3(({ region }) => region)),
    "access key": wide(s3(({ access_key_id }) => access_key_id))
  }
}

const targetArgument = textArgument("target", "Id of the target")
const list = listCommand(
  listing,
  ask((muster) => muster.backupTargets.list()),
  "No targets.",
  {
    description: "List the targets of backups",
    examples: {
      "muster backups targets list": "All targets, and who defined them",
      "muster backups targets list -o wide": "Also their prefixes and regions"
    }
  }
)

/** The fields of a target in a bucket, besides its secret. */
const bucketFlags = {
  endpoint: textFlag("endpoint", "URL of the S3 server"),
  region: textFlag("region", "Its region"),
  bucket: textFlag("bucket", "Name of the bucket"),
  prefix: textFlag("prefix", "Beginning of the keys of its objects"),
  "access-key": textFlag("access-key", "Id of the access key"),
  "secret-file": textFlag("secret-file", "File with the secret access key; - is standard input")
} as const

const folderFlag = textFlag(
  "folder",
  "In place of a bucket: a folder of each node, below one of its MUSTER_NODE_BACKUP_FOLDERS"
)

const secretIn = (file: Option.Option<string>) =>
  Effect.transposeOption(Option.map(file, (path) => lineIn("secret access key", path)))

const needed = (name: keyof typeof bucketFlags, value: Option.Option<string>) =>
  Option.match(value, {
    onSome: Effect.succeed,
    onNone: () => wrongUsage(`--${name} is missing: a target is a bucket with it, or --folder.`)
  })

const create = command("create", {
  description:
    "Define a target: a bucket of an S3 server, or a folder of the nodes. The secret is read from a file and never shown. Test the target before you use it.",
  short: "Define a target in an S3 bucket or a folder",
  examples: {
    "muster backups targets create offsite --endpoint https://s3.eu-west-1.amazonaws.com --region eu-west-1 --bucket my-backups --access-key AKIAEXAMPLE --secret-file s3-secret":
      "A bucket of AWS",
    "muster backups targets create minio --endpoint https://minio.example --region us-east-1 --bucket backups --access-key muster --secret-file - --path-style":
      "A server of your own; the secret on standard input",
    "muster backups targets create nas --folder /mnt/backups/muster":
      "A disk or network storage that is mounted on the nodes"
  },
  input: {
    target: targetArgument,
    folder: folderFlag,
    ...bucketFlags,
    "path-style": switchFlag("path-style", "The name of the bucket is in the path, as MinIO needs"),
    ...outputFlags
  },
  *run({ bucket, endpoint, folder, prefix, region, target, ...flags }) {
    const { "access-key": key, "path-style": path_style, "secret-file": file } = flags
    const ofBucket = [bucket, endpoint, prefix, region, key, file]
    if (Option.isSome(folder) && (path_style || ofBucket.some(Option.isSome)))
      return yield* wrongUsage("A target is a bucket or a folder: --folder stands alone.")
    const payload = Option.isSome(folder)
      ? { id: target, type: "node" as const, folder: folder.value }
      : {
          ...{ id: target, type: "s3" as const, endpoint: yield* needed("endpoint", endpoint) },
          ...{ region: yield* needed("region", region), bucket: yield* needed("bucket", bucket) },
          access_key_id: yield* needed("access-key", key),
          secret_access_key: yield* lineIn("secret access key", yield* needed("secret-file", file)),
          ...given({ prefix }),
          ...(path_style ? { path_style } : {})
        }
    yield* printOne(flags, listing, yield* ask((muster) => muster.backupTargets.create({ payload })))
  }
})

const patch = command("patch", {
  description:
    "Change a target. Backups that are in it are looked for where it is from then on: copy them there before.",
  short: "Change a target",
  examples: {
    "muster backups targets patch offsite --access-key AKIAEXAMPLE --secret-file s3-secret":
      "Another access key",
    "muster backups targets patch nas --folder /mnt/backups/new": "Another folder"
  },
  input: {
    target: targetArgument,
    folder: folderFlag,
    ...bucketFlags,
    "no-prefix": switchFlag("no-prefix", "Its keys have no prefix"),
    "path-style": choiceFlag(
      "path-style",
      ["true", "false"],
      "Whether the name of the bucket is in the path"
    ),
    ...outputFlags
  },
  *run({ bucket, endpoint, folder, prefix, region, target, ...flags }) {
    if (flags["no-prefix"] && Option.isSome(prefix))
      return yield* wrongUsage("Give --prefix or --no-prefix, not both.")
    const payload = {
      ...given({ bucket, endpoint, folder, prefix, region, access_key_id: flags["access-key"] }),
      ...given({ secret_access_key: yield* secretIn(flags["secret-file"]) }),
      ...given({ path_style: Option.map(flags["path-style"], (text) => text === "true") }),
      ...(flags["no-prefix"] ? { prefix: null } : {})
    }
    if (Object.keys(payload).length === 0)
      return yield* wrongUsage("Say what to change, such as with --secret-file FILE.")
    const changed = yield* ask((muster) => muster.backupTargets.patch({ params: { target }, payload }))
    yield* printOne(flags, listing, changed)
  }
})

const test = command("test", {
  description: "Have a node write, read and delete an object. Ends with 1 if a step fails, and names it.",
  short: "Test a target",
  examples: {
    "muster backups targets test offsite": "From any connected node",
    "muster backups targets test offsite --node n1": "From one node"
  },
  input: {
    target: targetArgument,
    node: textFlag("node", "The node that tests it: its id, the beginning of one, or its name")
  },
  *run({ node, target }) {
    const payload = Option.isSome(node) ? { node_id: (yield* nodeNamed(node.value)).id } : {}
    const tested = yield* ask((muster) => muster.backupTargets.test({ params: { target }, payload }))
    if (!tested.ok)
      return yield* CommandError.failed(
        `node ${tested.node_id} cannot ${tested.step ?? "use"}: ${tested.reason ?? "no reason given"}`
      )
    yield* Console.log(`Node ${tested.node_id} can write, read and delete.`)
  }
})

const remove = command("delete", {
  description: "Delete a target that has no backups. Its bucket or folder stays.",
  examples: {
    "muster backups targets delete offsite": "After confirmation",
    "muster backups targets delete offsite --yes": "Without a question"
  },
  input: { target: targetArgument, yes: yesFlag },
  *run({ target, yes }) {
    yield* confirm(`Delete the target ${target}, with its secret if it has one?`, yes)
    yield* ask((muster) => muster.backupTargets.remove({ params: { target } }))
    yield* Console.log(`Target ${target} is deleted.`)
  }
})

export const targets = group("targets", {
  short: "Define where backups are stored",
  description: "Define, change, test and delete targets of backups. Needs a key of scope AppAdmin.",
  subcommands: [list, create, patch, test, remove]
})
