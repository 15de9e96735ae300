//! Checked reads of integers from a byte slice. They return `None` if the slice is too short.

macro_rules! read {
    ($name:ident, $int:ty, $from:ident, $order:literal) => {
        #[doc = concat!("The ", $order, "-endian `", stringify!($int), "` at `offset`.")]
        pub fn $name(bytes: &[u8], offset: usize) -> Option<$int> {
            let end = offset.checked_add(size_of::<$int>())?;
            bytes.get(offset..end)?.try_into().ok().map(<$int>::$from)
        }
    };
}

read!(be16, u16, from_be_bytes, "big");
read!(be32, u32, from_be_bytes, "big");
read!(be64, u64, from_be_bytes, "big");
read!(le16, u16, from_le_bytes, "little");
read!(le32, u32, from_le_bytes, "little");
read!(le64, u64, from_le_bytes, "little");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_byte_orders_and_not_past_the_end() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(be16(&bytes, 6), Some(0x0708));
        assert_eq!(le16(&bytes, 6), Some(0x0807));
        assert_eq!(be32(&bytes, 4), Some(0x0506_0708));
        assert_eq!(le32(&bytes, 4), Some(0x0807_0605));
        assert_eq!(be64(&bytes, 0), Some(0x0102_0304_0506_0708));
        assert_eq!(le64(&bytes, 0), Some(0x0807_0605_0403_0201));
        assert_eq!(be16(&bytes, 7), None);
        assert_eq!(le64(&bytes, usize::MAX), None);
    }
}
