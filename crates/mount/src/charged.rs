//! Which requests are operations on names: they are load of the metadata tier, and an emulated one is charged for them.

use stripewise_fuse::Call;
use stripewise_store::emulate::Op;

/// What an operation on names is to the metadata tier: one that looks is a read, one that changes something a write. `None` for
/// requests on bytes, which are charged where the bytes are, and for those that end something.
pub fn on_names(call: &Call<'_>) -> Option<Op> {
    match call {
        Call::Lookup { .. }
        | Call::GetAttr
        | Call::Statx
        | Call::ReadLink
        | Call::Open { .. }
        | Call::OpenDir
        | Call::ReadDir { .. }
        | Call::ReadDirPlus { .. }
        | Call::GetXattr { .. }
        | Call::ListXattr { .. } => Some(Op::Read),
        Call::SetAttr(_)
        | Call::SymLink { .. }
        | Call::MkNod { .. }
        | Call::MkDir { .. }
        | Call::Unlink { .. }
        | Call::RmDir { .. }
        | Call::Rename { .. }
        | Call::Link { .. }
        | Call::Create { .. }
        | Call::TmpFile { .. }
        | Call::SetXattr { .. }
        | Call::RemoveXattr { .. } => Some(Op::Write),
        _ => None,
    }
}
