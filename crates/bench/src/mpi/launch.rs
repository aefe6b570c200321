//! Starting ranks: `mpiexec`, and the library beside it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::library::Library;
use crate::error::BenchError;
use crate::run::BenchRun;

/// Tells ranks which library to load: the one beside the `mpiexec` that starts them.
const LIBRARY_VARIABLE: &str = "STRIPEWISE_MPI_LIBRARY";

/// What the starters of MPI ranks set, each its own.
const RANK_VARIABLES: [&str; 3] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"];

/// Whether this process was started as an MPI rank.
pub fn is_rank() -> bool {
    RANK_VARIABLES.iter().any(|name| env::var_os(name).is_some())
}

/// Whether it speaks for all ranks where MPI itself cannot say which one is first.
pub fn is_first() -> bool {
    RANK_VARIABLES.iter().filter_map(env::var_os).all(|rank| rank == OsStr::new("0"))
}

/// Becomes `mpiexec`, which starts this program once for each process of the run; returns only when that fails.
pub fn start(run: &BenchRun<'_>) -> BenchError {
    match prepared(run) {
        Ok(mut command) => {
            let program = command.get_program().to_owned();
            BenchError::NoMpi(format!("cannot run {}: {}", program.display(), command.exec()))
        }
        Err(error) => error,
    }
}

fn prepared(run: &BenchRun<'_>) -> Result<Command, BenchError> {
    let common = run.common;
    let mpiexec = match &common.mpiexec {
        Some(path) if path.components().count() > 1 => match path.is_file() {
            true => path.clone(),
            false => return Err(BenchError::NoMpi(format!("no --mpiexec {}", path.display()))),
        },
        Some(name) => in_path(name).ok_or_else(|| BenchError::NoMpi(format!("no {} in PATH", name.display())))?,
        None => in_path(Path::new("mpiexec")).or_else(|| in_path(Path::new("mpirun"))).ok_or_else(|| {
            BenchError::NoMpi(
                "no mpiexec in PATH to start MPI processes with; install MPI, as by `pip install mpich`, or name it by \
                 --mpiexec"
                    .into(),
            )
        })?,
    };
    let candidates = beside(&mpiexec);
    let library = common.mpi_library.clone().or_else(|| candidates.iter().find(|path| path.is_file()).cloned());
    // Here and now, so that one process complains and not each rank.
    Library::load(library.as_deref(), &candidates)?;
    let own = env::current_exe().map_err(|source| BenchError::System { action: "find this program", source })?;
    let mut command = Command::new(mpiexec);
    command.arg("-n").arg(run.processes().to_string()).arg(own).args(env::args_os().skip(1));
    // Waiting for emulated or slow servers needs no core of its own; Open MPI 4 and 5 ask for one unless told otherwise.
    for (name, value) in
        [("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")]
    {
        if env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    if let Some(library) = library {
        command.env(LIBRARY_VARIABLE, std::path::absolute(&library).unwrap_or(library));
    }
    Ok(command)
}

/// Loads the library for a rank.
///
/// # Errors
/// [`BenchError::NoMpi`] when there is none that can be used.
pub fn library(run: &BenchRun<'_>) -> Result<Library, BenchError> {
    let chosen = run.common.mpi_library.clone().or_else(|| env::var_os(LIBRARY_VARIABLE).map(PathBuf::from));
    // The process that starts ranks is of the same installation as the mpiexec that started it.
    let parent = rustix::process::getppid().map(|parent| format!("/proc/{}/exe", parent.as_raw_nonzero()));
    let parent = parent.and_then(|link| std::fs::read_link(link).ok());
    let candidates: Vec<PathBuf> =
        parent.into_iter().chain(in_path(Path::new("mpiexec"))).flat_map(|program| beside(&program)).collect();
    // Files beside a program come before what the loader finds by name alone.
    let (files, names): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|path| path.is_absolute());
    Library::load(chosen.as_deref(), &[files, names].concat())
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Where the library of an `mpiexec` may be, the likeliest first, and what the loader may know it by.
fn beside(mpiexec: &Path) -> Vec<PathBuf> {
    const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
    const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
    let real = mpiexec.canonicalize().unwrap_or_else(|_| mpiexec.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let open = ["openmpi", "orterun", "prterun", "ompi"].iter().any(|part| name.contains(part));
    let mut names: Vec<&str> = MPICH.iter().chain(&OPEN_MPI).copied().collect();
    if open {
        names.reverse();
    }
    let mut found = Vec::new();
    for program in [mpiexec, &real] {
        if let Some(prefix) = program.parent().and_then(Path::parent) {
            let machine = format!("lib/{}-linux-gnu", env::consts::ARCH);
            for directory in ["lib", "lib64", &machine] {
                found.extend(names.iter().map(|name| prefix.join(directory).join(name)));
            }
        }
    }
    found.extend(names.iter().map(PathBuf::from));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_beside_mpiexec_comes_before_the_loaders() {
        let candidates = beside(Path::new("/opt/mpi/bin/mpiexec"));
        assert_eq!(candidates[0], Path::new("/opt/mpi/lib/libmpi.so.12"));
        assert_eq!(candidates.last().unwrap(), Path::new("libmpi.so.40"));
        let open = beside(Path::new("/usr/bin/mpiexec.openmpi"));
        assert_eq!(open[0], Path::new("/usr/lib/libmpi.so.40"));
    }
}
