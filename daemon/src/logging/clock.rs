//! Calendar time in UTC, from the seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment as a calendar and a clock show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Utc {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
    pub(super) microsecond: u32,
}

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// The calendar repeats after 400 years.
const DAYS_PER_ERA: u64 = 400 * 365 + 97;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

impl Utc {
    /// What a clock shows at `time`; 1970 for anything earlier.
    pub(super) fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, seconds) = (
            since.as_secs() / SECONDS_PER_DAY,
            since.as_secs() % SECONDS_PER_DAY,
        );
        let (year, month, day) = date(days);
        Self {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            microsecond: since.subsec_micros(),
        }
    }
}

/// Year, month and day of `days` after 1970-01-01 in the Gregorian calendar.
///
/// Years are counted from 1 March, so that the leap day is the last of its year and the lengths of months
/// (31, 30, 31, 30, 31 twice, then 31 and the rest) follow the line `153 / 5` days a month.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    // A leap day every 4 years (1461 days), except every 100 (36524), except every 400 (146097).
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, next_year) = if month_from_march < 10 {
        (month_from_march + 3, 0)
    } else {
        (month_from_march - 9, 1)
    };
    (era * 400 + year_of_era + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_moments() {
        // Seconds as `date -u -d … +%s` prints them.
        for (seconds, year, month, day, hour, minute, second) in [
            (0, 1970, 1, 1, 0, 0, 0),
            (951_782_400, 2000, 2, 29, 0, 0, 0),
            (1_709_164_799, 2024, 2, 28, 23, 59, 59),
            (1_709_251_200, 2024, 3, 1, 0, 0, 0),
            (1_759_112_034, 2025, 9, 29, 2, 13, 54),
            (4_107_542_400, 2100, 3, 1, 0, 0, 0),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(319_027);
            let expected = Utc {
                year,
                month,
                day,
                hour,
                minute,
                second,
                microsecond: 319_027,
            };
            assert_eq!(Utc::of(time), expected);
        }
        assert_eq!(Utc::of(UNIX_EPOCH - Duration::from_secs(1)), Utc::of(UNIX_EPOCH));
    }

    fn last_day(year: u64, month: u64) -> u64 {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        match month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut previous = date(0);
        for days in 1..DAYS_PER_ERA {
            let expected = match previous {
                (year, month, day) if day < last_day(year, month) => (year, month, day + 1),
                (year, 12, _) => (year + 1, 1, 1),
                (year, month, _) => (year, month + 1, 1),
            };
            assert_eq!(date(days), expected);
            previous = expected;
        }
    }
}
