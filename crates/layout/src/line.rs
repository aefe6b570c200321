//! A layout in one line, as a hint names it: the rounds of a layout file, `hdd.0-5:64KiB,ssd.0-1:192KiB`. Each region but the first
//! says where it begins: `meta:64KiB/64KiB@hdd.0-5:64KiB`.

use crate::layout::Layout;
use crate::names::ServerNames;
use crate::rst::{LayoutFile, RstProblem, round_entries};
use crate::units::format_bytes;
use std::fmt::Write as _;

impl Layout {
    /// Reads a layout in one line.
    ///
    /// # Errors
    /// The first mistake: see [`RstProblem`].
    pub fn parse_line(text: &str, names: &ServerNames) -> Result<Self, RstProblem> {
        // What would end a text of the layout file that is made of it.
        if text.chars().any(|each| matches!(each, '"' | '\\') || each.is_control()) {
            return Err(RstProblem::Entry(text.to_owned()));
        }
        let mut file = "version = 1\npool = \"\"\n[[file]]\npath = \"*\"\n".to_owned();
        for (number, region) in text.split('/').enumerate() {
            let (offset, round) = match region.split_once('@') {
                Some(placed) => placed,
                None if number == 0 => ("0", region),
                None => return Err(RstProblem::NoOffset(region.to_owned())),
            };
            let entries: Vec<String> = round.split(',').map(|entry| format!("\"{}\"", entry.trim())).collect();
            // Writing to a string fails never.
            let _ = write!(file, "[[file.region]]\noffset = \"{offset}\"\nround = [{}]\n", entries.join(", "));
        }
        let file = LayoutFile::parse(&file, names).map_err(|error| error.problem)?;
        file.files.into_iter().next().map(|file| file.layout).ok_or_else(|| RstProblem::Entry(text.to_owned()))
    }

    /// The layout in one line; [`Layout::parse_line`] with the same `names` reads the same back.
    pub fn to_line(&self, names: &ServerNames) -> String {
        let region = |(number, region): (usize, &crate::layout::Region)| {
            let round = round_entries(region.stripes(), names).join(",");
            if number == 0 { round } else { format!("{}@{round}", format_bytes(region.offset())) }
        };
        self.regions().iter().enumerate().map(region).collect::<Vec<_>>().join("/")
    }
}
