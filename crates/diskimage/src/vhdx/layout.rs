//! VHDX as the engine sees it.

use super::bat::{ENTRY_BYTES, Fault, Vhdx, entries};
use super::check::VhdxCheck;
use crate::layout::{Access, Check, Layout};
use crate::offsets::Host;
use crate::wants::{Batch, Role, Table};
use crate::{Error, Facts, Format};

impl Layout for Vhdx {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check> {
        Box::new(VhdxCheck::new(*self, image_length))
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn begin(&mut self, access: Access) -> Result<Batch, Error> {
        self.reach.begin(access);
        let mut first = Batch::default();
        self.table_parts(&mut first);
        Ok(first)
    }

    fn learn(&mut self, table: Table<'_>, batch: &mut Batch) -> Result<(), Error> {
        for (index, entry) in entries(table) {
            let block = self.block(index, entry).map_err(|fault| {
                let (Fault::OfItsPlace(what) | Fault::OfItsState(what)) = fault;
                Format::Vhdx.corrupt(what, self.regions.bat.start + index * ENTRY_BYTES)
            })?;
            if let Some(block) = block {
                self.reach.extend(block.end);
                batch.push(block.host, block.length, Role::Data, block.guest);
            }
        }
        self.reach.check()
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block allocation table"
    }

    fn finish(&mut self, end: Host) -> Result<(), Error> {
        self.reach.finish(end)
    }
}
