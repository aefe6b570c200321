//! Which bytes of a file a process sees: MPI's file views, and what they mean without an MPI library.

/// A datatype over bytes. It repeats from its extent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Everything.
    Bytes,
    /// Blocks at a distance of each other, with the distance after the last block, too.
    Vector {
        /// Blocks.
        count: u64,
        /// Bytes of a block.
        block: u64,
        /// Bytes from the begin of a block to the begin of the next.
        stride: u64,
    },
    /// A part of an array, the last dimension contiguous.
    Subarray {
        /// Elements of the array in each dimension.
        sizes: Vec<u64>,
        /// Elements of the part.
        parts: Vec<u64>,
        /// First element of the part.
        starts: Vec<u64>,
        /// Bytes of an element.
        element: u64,
    },
    /// Several types of the same extent, the bytes of each after those of the one before it.
    Overlay(Vec<Type>),
}

/// A run of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Type {
    /// Bytes from its begin to the begin of its repetition.
    pub fn extent(&self) -> u64 {
        match self {
            Self::Bytes => 1,
            Self::Vector { count, stride, .. } => count * stride,
            Self::Subarray { sizes, element, .. } => sizes.iter().product::<u64>() * element,
            Self::Overlay(types) => types.first().map_or(0, Self::extent),
        }
    }

    /// The bytes that it selects in one extent, in order.
    fn pieces(&self) -> Vec<Piece> {
        match self {
            Self::Bytes => vec![Piece { offset: 0, bytes: 1 }],
            Self::Vector { count, block, stride } => {
                (0..*count).map(|number| Piece { offset: number * stride, bytes: *block }).collect()
            }
            Self::Subarray { sizes, parts, starts, element } => {
                let mut places = vec![0];
                for ((size, part), start) in sizes.iter().zip(parts).zip(starts).take(sizes.len() - 1) {
                    places = places
                        .iter()
                        .flat_map(|place| (0..*part).map(move |number| place * size + start + number))
                        .collect();
                }
                let last = sizes.len() - 1;
                let row = |place: u64| Piece {
                    offset: (place * sizes[last] + starts[last]) * element,
                    bytes: parts[last] * element,
                };
                places.into_iter().map(row).collect()
            }
            Self::Overlay(types) => types.iter().flat_map(Self::pieces).collect(),
        }
    }
}

/// A process's view of a file: a type that repeats from a displacement on.
#[derive(Debug)]
pub struct View {
    /// First byte of the file that is part of the view's first extent.
    pub displacement: u64,
    /// What repeats.
    pub filetype: Type,
    pieces: Vec<Piece>,
    /// Bytes of the view before each piece, and, at last, of all.
    before: Vec<u64>,
}

impl View {
    /// The view of `filetype` from `displacement` on.
    ///
    /// Cost: linear in the runs of bytes of one extent.
    pub fn new(displacement: u64, filetype: Type) -> Self {
        let pieces = filetype.pieces();
        let mut before = Vec::with_capacity(pieces.len() + 1);
        before.push(0);
        for piece in &pieces {
            before.push(before.last().copied().unwrap_or(0) + piece.bytes);
        }
        Self { displacement, filetype, pieces, before }
    }

    /// The whole file.
    pub fn bytes() -> Self {
        Self::new(0, Type::Bytes)
    }

    /// Whether it is the whole file.
    pub fn is_plain(&self) -> bool {
        self.displacement == 0 && self.filetype == Type::Bytes
    }

    /// The same view, further on in the file.
    pub fn moved(self, by: u64) -> Self {
        Self { displacement: self.displacement + by, ..self }
    }

    /// Puts the runs of the file that are bytes `[offset, offset + bytes)` of the view into `found`, in the view's order.
    ///
    /// Cost: linear in their number.
    pub fn pieces(&self, offset: u64, bytes: u64, found: &mut Vec<Piece>) {
        found.clear();
        if self.filetype == Type::Bytes {
            found.push(Piece { offset: self.displacement + offset, bytes });
            return;
        }
        let size = self.before.last().copied().unwrap_or(0);
        if size == 0 {
            return;
        }
        let (mut at, end) = (offset, offset + bytes);
        let mut index = self.before.partition_point(|before| *before <= at % size) - 1;
        while at < end {
            let piece = self.pieces[index];
            let skip = at % size - self.before[index];
            let length = (piece.bytes - skip).min(end - at);
            let place = self.displacement + at / size * self.filetype.extent() + piece.offset + skip;
            match found.last_mut() {
                Some(last) if last.offset + last.bytes == place => last.bytes += length,
                _ => found.push(Piece { offset: place, bytes: length }),
            }
            at += length;
            index = (index + 1) % self.pieces.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(view: &View, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        view.pieces(offset, bytes, &mut found);
        found.iter().map(|piece| (piece.offset, piece.bytes)).collect()
    }

    #[test]
    fn a_vector_takes_its_column() {
        let view = View::new(8, Type::Vector { count: 2, block: 4, stride: 20 });
        assert_eq!(pieces(&view, 0, 12), [(8, 4), (28, 4), (48, 4)]);
        assert_eq!(pieces(&view, 6, 4), [(30, 2), (48, 2)]);
    }

    #[test]
    fn a_subarray_takes_its_rows_plane_by_plane() {
        let filetype =
            Type::Subarray { sizes: vec![2, 3, 4], parts: vec![2, 2, 2], starts: vec![0, 1, 2], element: 10 };
        assert_eq!(filetype.extent(), 240);
        let view = View::new(0, filetype);
        assert_eq!(pieces(&view, 0, 80), [(60, 20), (100, 20), (180, 20), (220, 20)]);
        // The second repetition begins one extent later.
        assert_eq!(pieces(&view, 75, 10), [(235, 5), (300, 5)]);
    }

    #[test]
    fn runs_that_touch_are_one() {
        let whole = Type::Subarray { sizes: vec![4, 4], parts: vec![2, 4], starts: vec![1, 0], element: 1 };
        assert_eq!(pieces(&View::new(0, whole), 0, 8), [(4, 8)]);
        assert_eq!(pieces(&View::bytes().moved(7), 100, 50), [(107, 50)]);
    }

    proptest! {
        /// A request's runs are those of its bytes one by one.
        #[test]
        fn requests_are_their_bytes(
            count in 1_u64..4, block in 1_u64..6, gap in 0_u64..5, offset in 0_u64..60, bytes in 0_u64..60, base in 0_u64..9,
        ) {
            let column = Type::Vector { count, block, stride: block + gap };
            let other = Type::Subarray {
                sizes: vec![count, block + gap], parts: vec![count, block], starts: vec![0, 0], element: 1,
            };
            for filetype in [column, other] {
                let view = View::new(base, filetype);
                let each: Vec<u64> = (offset..offset + bytes)
                    .map(|byte| base + byte / block * (block + gap) + byte % block)
                    .collect();
                let runs: Vec<u64> =
                    pieces(&view, offset, bytes).into_iter().flat_map(|(from, length)| from..from + length).collect();
                prop_assert_eq!(runs, each);
            }
        }
    }
}
