//! Evidence of an image's publisher that is given on a command line.

use publisher::{
    ListDemand, demand_signature, location_name, read_image_signature, read_keyring_file,
    require_name,
};
use stream::options::ReadOptions;
use stream::source::Source;

use super::args::{EvidenceArgs, SourceArgs};
use super::failure::{ImporterCommandError, usage_error};
use super::open::JobContext;

/// Opens the image that `arguments` name, so that it can only be read to its end if it is what the
/// evidence demands. Returns `reading` with the checksum from a list.
pub(super) fn open_image(
    context: &JobContext,
    arguments: &SourceArgs,
    evidence: &EvidenceArgs,
    reading: &ReadOptions,
) -> Result<(Box<dyn Source>, ReadOptions), ImporterCommandError> {
    let is_checked = reading.checksum.is_some();
    let keyring = evidence.keyring.as_deref().map(read_keyring_file).transpose()?;
    match (&evidence.verify_sums, &evidence.signature, keyring) {
        (Some(place), signature, keyring) => {
            let (place, signature) = (place.clone(), signature.clone());
            open_listed(context, arguments, &ListDemand { place, keyring, signature }, reading)
        }
        (None, Some(place), Some(keyring)) => {
            require_name(&arguments.source, "--signature")?;
            let reader = context.document_reader(arguments)?;
            let signers = read_image_signature(&reader, place, &keyring)?;
            let (source, _) = context.open_located_image(arguments, is_checked, true)?;
            Ok((demand_signature(source, signers), reading.clone()))
        }
        (None, None, Some(_)) => Err(usage_error(
            "--keyring needs something that is signed: pass --verify-sums or --signature",
        )),
        (None, _, None) => Ok((context.open_image(arguments, is_checked)?, reading.clone())),
    }
}

/// Opens an image whose checksum is in a list.
fn open_listed(
    context: &JobContext,
    arguments: &SourceArgs,
    demand: &ListDemand,
    reading: &ReadOptions,
) -> Result<(Box<dyn Source>, ReadOptions), ImporterCommandError> {
    let asked = require_name(&arguments.source, "--verify-sums")?;
    let list = demand.read(&context.document_reader(arguments)?)?;
    // If the name is listed, the checksum is known before the server can redirect to another
    // name, or to a connection without TLS.
    let is_known = list.find_asked(&asked)?.is_some() && list.is_protected;
    let (source, location) = context.open_located_image(arguments, is_known, true)?;
    let served = location.as_ref().and_then(location_name);
    let checksum = list.find(&asked, served.as_deref().unwrap_or(&asked))?;
    Ok((source, ReadOptions { checksum: Some(checksum), ..reading.clone() }))
}
