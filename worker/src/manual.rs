//! What every command line can print about itself.

use std::io::{self, Write};

use clap::Command;

/// The manual in roff: a page for the program, followed by one for each subcommand.
pub fn write(program: Command, page: &mut dyn Write) -> io::Result<()> {
    let mut program = program;
    program.build();
    clap_mangen::Man::new(program.clone()).render(page)?;
    for subcommand in program
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        clap_mangen::Man::new(subcommand.clone()).render(page)?;
    }
    Ok(())
}
