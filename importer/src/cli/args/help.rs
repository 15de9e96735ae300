//! The examples that `--help` shows below the options.

pub(super) const IMPORT_EXAMPLES: &str = "\
Examples:
  cdi-importer import https://example.org/debian.qcow2 disk.img
  cdi-importer import --checksum sha256:9f86d0…0a08 \\
      https://example.org/disk.raw.xz /dev/vg0/vm1
  cdi-importer import --size 20Gi --preallocate ./fedora.qcow2 disk.img
  cdi-importer import docker://quay.io/containerdisks/fedora:40 disk.img
  AWS_ENDPOINT_URL=https://minio.example \\
      cdi-importer import s3://images/vm.qcow2 disk.img
  curl -s https://example.org/disk.img.gz | cdi-importer import - disk.img";

pub(super) const UNPACK_EXAMPLES: &str = "\
Examples:
  cdi-importer unpack https://example.org/rootfs.tar.xz /mnt/volume
  cdi-importer unpack --checksum sha256:9f86d0…0a08 ./files.tar.zst .
  cdi-importer unpack --overwrite ./etc.tar.gz /mnt/volume/etc";

pub(super) const APPLY_EXAMPLES: &str = "\
Examples:
  cdi-importer apply --base monday.qcow2 ./tuesday.qcow2 disk.img
  cdi-importer apply --no-backing-name backup2-rootdisk.qcow2 disk.img
  cdi-importer apply --ranges map.json --backup-type incremental \\
      https://backup.example.org/disk.raw disk.img
  cdi-importer apply --base 51d2… --checkpoint 9f0c… \\
      --previous-checkpoint 51d2… --user admin@internal --password-file pw \\
      ovirt+https://engine/ovirt-engine/api/disks/4b1e… /dev/vg0/vm1";

pub(super) const RESTORE_EXAMPLES: &str = "\
Examples:
  cdi-importer restore full.qcow2 monday.qcow2 tuesday.qcow2 disk.img
  sha256sum full.qcow2 monday.qcow2 > chain.sha256
  cdi-importer restore --manifest chain.sha256 full.qcow2 monday.qcow2 \\
      /dev/vg0/vm1";

pub(super) const PACK_EXAMPLES: &str = "\
Examples:
  cdi-importer pack ./vm.qcow2 oci-archive:vm.tar
  cdi-importer pack --config vm.json --name root ./root.img \\
      --disk data=./data.vmdk oci:vm:v1
  skopeo copy --multi-arch=all oci:vm:v1 docker://registry.example/vm:v1";

pub(super) const CONVERT_EXAMPLES: &str = "\
Examples:
  cdi-importer convert vm.vmdk vm.img
  cdi-importer convert --preallocate vm.vhdx /dev/vg0/vm1
  cdi-importer convert --compression zstd /dev/vg0/vm1 vm.qcow2
  xz -dc disk.vdi.xz | cdi-importer convert - disk.img";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  cdi-importer check disk.qcow2
  cdi-importer check --data --json https://example.org/disk.vmdk | jq .errors";

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  cdi-importer compare disk.img /dev/vg0/vm1";

pub(super) const INFO_EXAMPLES: &str = "\
Examples:
  cdi-importer info https://example.org/debian.qcow2
  cdi-importer info --json ./disk.qcow2 | jq .virtual_size";
