//! RabbitMQ compared with itself: a difference here would be the test's own.

use redrive_brokers::Version;
use redrive_rabbitmq_differential::campaign::campaign;
use redrive_rabbitmq_differential::generate::Combination;
use redrive_rabbitmq_differential::nodes;
use redrive_rabbitmq_differential::scenario::Kind;

/// Enough to see that it runs; `redrive-rabbitmq-differential self` runs more.
const SCENARIOS: u64 = 4;

fn equals_itself(version: Version) {
    let running = nodes::real(version);
    for kind in [Kind::Classic, Kind::Quorum] {
        let combination = Combination { version, kind };
        let seeds: Vec<u64> = (0..SCENARIOS).collect();
        let report = campaign(combination, &seeds, [&running.real, &running.real], 8, |_, _| {});
        assert_eq!(report.different, [], "{combination}");
        assert_eq!(report.failed, [], "{combination}");
    }
}

#[test]
fn v3_10_equals_itself() {
    equals_itself(Version::V3_10);
}

#[test]
fn v4_3_equals_itself() {
    equals_itself(Version::V4_3);
}
