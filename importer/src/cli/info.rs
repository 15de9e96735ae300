//! Runs `cdi-importer info`, which describes an image and the volume that it needs.

use std::fmt::Write;
use std::sync::Arc;

use hypervisors::nfc::SurveyStep;
use hypervisors::vddk::{MachineEntry, VmwareSurvey};
use inspect::{Inspection, inspect_image};
use oci::{ArtifactDisk, SeveralDisks};
use program::progress::BinaryBytes;
use program::space::ALIGNMENT_BYTES;
use serde_json::{Value, json};
use stream::Error;
use stream::observe::NoObserver;

use super::args::InfoArgs;
use super::failure::{ImporterCommandError, of_source};

pub(super) fn run(mut arguments: InfoArgs) -> Result<(), ImporterCommandError> {
    arguments.source.limit_retries();
    arguments.log.begin_logging(super::PROGRAM);
    let (json, overhead) = (arguments.json, arguments.overhead);
    let found = super::on_runtime(NoObserver::new_shared(), move |context| {
        let limits = &arguments.source.limits;
        let reading = limits.read_options(context.stop.clone(), Arc::clone(&context.observer));
        if let Some(survey) = context.survey_vmware(&arguments.source)? {
            return Ok((arguments.source.source, InfoFacts::Vmware(survey)));
        }
        let source = match context.open_image(&arguments.source, false) {
            Err(error) => {
                return artifact_disks(error).map(|disks| (arguments.source.source, disks));
            }
            opened => opened?,
        };
        let inspected = inspect_image(&*source, arguments.source.content.payload_kind(), &reading);
        let image = inspected.map_err(of_source(|| source.name()))?;
        Ok((source.name(), InfoFacts::Image(Box::new(image))))
    })?;
    let text = match (&found, json) {
        ((name, InfoFacts::Image(image)), true) => json_text(&as_json(name, image, overhead)),
        ((name, InfoFacts::Image(image)), false) => as_text(name, image, overhead),
        ((name, InfoFacts::Disks(disks)), true) => json_text(&disks_as_json(name, disks)),
        ((name, InfoFacts::Disks(disks)), false) => disks_as_text(name, disks),
        ((name, InfoFacts::Vmware(survey)), true) => json_text(&survey_as_json(name, survey)),
        ((name, InfoFacts::Vmware(survey)), false) => survey_as_text(name, survey),
    };
    super::print_bytes(text.as_bytes())
}

/// The fields of a JSON object that describe an image and not its source.
const FIELDS_OF_IMAGES: [&str; 12] = [
    "source_bytes",
    "layers",
    "format",
    "virtual_size",
    "allocated_bytes",
    "cluster_size",
    "features",
    "references",
    "snapshots",
    "volume",
    "refused",
    "changed",
];

/// The facts about a source.
enum InfoFacts {
    /// About one image.
    Image(Box<Inspection>),
    /// The disks of an artifact, of which none was selected.
    Disks(Vec<ArtifactDisk>),
    /// About a VMware server, or a machine of it.
    Vmware(VmwareSurvey),
}

/// Returns the disks of the artifact if `error` says that one of them has to be selected.
fn artifact_disks(error: ImporterCommandError) -> Result<InfoFacts, ImporterCommandError> {
    let several = match &error {
        ImporterCommandError::Transfer(Error::Source(error), _) => SeveralDisks::of_error(error),
        _ => None,
    };
    several.map(|disks| InfoFacts::Disks(disks.to_vec())).ok_or(error)
}

fn json_text(value: &Value) -> String {
    printable::escape_json(&format!("{value:#}\n")).into_owned()
}

fn disks_as_json(name: &str, disks: &[ArtifactDisk]) -> Value {
    let as_json = |disk: &ArtifactDisk| {
        json!({
            "name": disk.name,
            "layer": disk.selector,
            "digest": disk.digest,
            "media_type": disk.media_type,
            "source_bytes": disk.stored_bytes,
            "stated_size": disk.stated_size,
        })
    };
    let mut object = json!({ "source": name, "disks": disks.iter().map(as_json).collect::<Vec<_>>(), "vmware": null });
    add_absent_fields(&mut object);
    object
}

/// Adds the fields of images: no field is ever absent.
fn add_absent_fields(object: &mut Value) {
    for field in FIELDS_OF_IMAGES {
        object[field] = Value::Null;
    }
}

fn survey_as_json(name: &str, survey: &VmwareSurvey) -> Value {
    let mut object = json!({ "source": name, "disks": null, "vmware": survey });
    add_absent_fields(&mut object);
    object
}

fn survey_as_text(name: &str, survey: &VmwareSurvey) -> String {
    let mut text = String::new();
    let mut row = |label: &str, value: &str| {
        // Writing to a String cannot fail.
        writeln!(text, "{label:<18} {}", printable::escape_text(value)).ok();
    };
    row("source", name);
    let survey = match survey {
        VmwareSurvey::Machine(survey) => survey,
        VmwareSurvey::Machines(machines) => {
            row("machines", &machines.len().to_string());
            for MachineEntry { object, name, .. } in machines {
                row("machine", &format!("{name} ({})", object.name));
            }
            return text;
        }
    };
    row("machine", &format!("{} ({})", survey.name, survey.id));
    let tracking = survey.change_tracking.map(|is_on| if is_on { "on" } else { "off" });
    row("change tracking", tracking.unwrap_or("unknown"));
    for (number, disk) in survey.disks.iter().enumerate() {
        row(&format!("disk {number}"), &disk.label);
        row("  file", &disk.file);
        row("  capacity", &disk.capacity.map_or_else(|| "unknown".to_owned(), size_text));
    }
    for snapshot in &survey.snapshots {
        row("snapshot", &format!("{} ({})", snapshot.name, snapshot.object.name));
    }
    for SurveyStep { step, works, result } in &survey.steps {
        row(step, &format!("{}: {result}", if *works { "works" } else { "fails" }));
    }
    text
}

fn disks_as_text(name: &str, disks: &[ArtifactDisk]) -> String {
    let mut text = String::new();
    let mut row = |label: &str, value: &str| {
        // Writing to a String cannot fail.
        writeln!(text, "{label:<18} {}", printable::escape_text(value)).ok();
    };
    row("source", name);
    row("disks", &format!("{}; --layer selects one", disks.len()));
    for disk in disks {
        row("layer", &disk.selector);
        if disk.selector != disk.digest {
            row("  digest", &disk.digest);
        }
        row("  media type", &disk.media_type);
        if let Some(bytes) = disk.stored_bytes {
            row("  source size", &size_text(bytes));
        }
        if let Some(size) = &disk.stated_size {
            row("  stated disk size", size);
        }
    }
    text
}

fn as_json(name: &str, image: &Inspection, overhead: f64) -> Value {
    json!({
        "source": name,
        "source_bytes": image.source_bytes,
        "layers": image.layers,
        "format": image.format.to_string(),
        "virtual_size": image.virtual_size,
        "allocated_bytes": image.allocated_bytes,
        "cluster_size": image.cluster_size,
        "features": image.features,
        "references": image.references,
        "snapshots": image.snapshots,
        "volume": image.virtual_size.map(|size| json!({
            "block_bytes": volume_size(size, 0.0),
            "filesystem_bytes": volume_size(size, overhead),
            "filesystem_overhead": overhead,
        })),
        "refused": image.refused,
        "changed": image.changed.map(|(bytes, areas)| json!({ "bytes": bytes, "areas": areas })),
        "disks": null,
        "vmware": null,
    })
}

fn as_text(name: &str, image: &Inspection, overhead: f64) -> String {
    let mut text = String::new();
    let mut row = |label: &str, value: String| {
        // Writing to a String cannot fail.
        writeln!(text, "{label:<18} {}", printable::escape_text(&value)).ok();
    };
    row("source", name.to_owned());
    row("source size", image.source_bytes.map_or_else(|| "unknown".to_owned(), size_text));
    row("compression", list_text(image.layers.iter().map(ToString::to_string)));
    row("format", image.format.to_string());
    let unknown =
        if image.refused.is_some() { "unknown" } else { "unknown until everything is read" };
    row("virtual size", image.virtual_size.map_or_else(|| unknown.to_owned(), size_text));
    if let Some(bytes) = image.allocated_bytes {
        row("allocated", size_text(bytes));
    }
    if let Some(bytes) = image.cluster_size {
        row("cluster size", size_text(bytes));
    }
    row("features", list_text(image.features.iter().cloned()));
    row("references", list_text(image.references.iter().cloned()));
    row("snapshots", image.snapshots.to_string());
    if let Some((bytes, areas)) = image.changed {
        row("changed", format!("{} in {areas} areas", size_text(bytes)));
    }
    if let Some(bytes) = image.virtual_size {
        row("block volume", size_text(volume_size(bytes, 0.0)));
        row(
            "filesystem volume",
            format!("{} with {overhead} overhead", size_text(volume_size(bytes, overhead))),
        );
    }
    if let Some(reason) = &image.refused {
        row("import", format!("would be refused: {reason}"));
    }
    text
}

fn size_text(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", BinaryBytes(bytes))
}

/// Joins `items` in the form `a, b`; an empty list becomes `none`.
fn list_text(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Returns the size in bytes of the volume that CDI's controllers request for a disk of
/// `virtual_size` bytes. It is a whole number of MiB, plus the fraction `overhead` of this number
/// for the filesystem. It is computed in `f64`, because the controllers compute it in `float64`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and `as` saturates"
)]
fn volume_size(virtual_size: u64, overhead: f64) -> u64 {
    let rounded = virtual_size.checked_next_multiple_of(ALIGNMENT_BYTES).unwrap_or(u64::MAX);
    let needed = (rounded as f64 * (1.0 + overhead)).ceil() as u64;
    // Above 2^53 the conversion to f64 can round down to a value below the size of the disk.
    needed.max(rounded)
}

#[cfg(test)]
mod tests {
    use program::space::usable_space;

    use super::*;

    #[test]
    fn a_volume_of_the_suggested_size_holds_the_disk() {
        for size in [0, 1, 1 << 20, (1 << 20) + 1, 5 << 30, 2_276_332_667, 1 << 44] {
            for overhead in [0.0, 0.055, 0.06, 0.5] {
                assert!(
                    usable_space(volume_size(size, overhead), overhead) >= size,
                    "{size} {overhead}"
                );
            }
        }
    }

    #[test]
    fn volume_sizes_match_those_of_the_controllers() {
        assert_eq!(volume_size(1 << 30, 0.0), 1 << 30);
        assert_eq!(volume_size(1 << 30, 0.06), 1_138_166_334);
        assert_eq!(volume_size(1, 0.0), 1 << 20);
        assert_eq!(volume_size(u64::MAX, 0.0), u64::MAX);
    }

    #[test]
    fn all_kinds_of_objects_have_the_same_fields() {
        let image = Inspection {
            layers: Vec::new(),
            format: diskimage::Format::Raw,
            source_bytes: None,
            virtual_size: None,
            allocated_bytes: None,
            cluster_size: None,
            features: Vec::new(),
            references: Vec::new(),
            snapshots: 0,
            refused: None,
            changed: None,
        };
        let fields =
            |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let of_image = fields(&as_json("", &image, 0.0));
        assert_eq!(of_image, fields(&disks_as_json("", &[])));
        assert_eq!(of_image, fields(&survey_as_json("", &VmwareSurvey::Machines(Vec::new()))));
    }

    #[test]
    fn an_empty_list_is_shown_as_none() {
        assert_eq!(list_text(["a", "b"].map(str::to_owned).into_iter()), "a, b");
        assert_eq!(list_text(std::iter::empty()), "none");
    }
}
