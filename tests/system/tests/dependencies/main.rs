//! The dependency rule of docs/architecture.md: of crates, read from `cargo metadata`, and of files and rooms, read from their sources.

mod circles;
mod graph;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Lower knows nothing of higher; transports never know each other.
const ALLOWED: &[(&str, &[&str])] = &[
    ("redrive-core", &[]),
    ("redrive-consumer", &["redrive-core"]),
    ("redrive-macros", &[]),
    // For tests only: of transports.
    ("redrive-contract", &["redrive-core"]),
    // For tests only: of consumers; RabbitMQ and its emulator by a feature.
    (
        "redrive-testkit",
        &[
            "redrive-consumer",
            "redrive-core",
            "redrive-memory",
            "redrive-rabbitmq",
            "redrive-rabbitmq-emulator",
        ],
    ),
    ("redrive-telemetry", &["redrive-consumer", "redrive-core"]),
    ("redrive-transport", &["redrive-core"]),
    ("redrive-ops", &["redrive-core"]),
    ("redrive-memory", &["redrive-core", "redrive-transport"]),
    ("redrive-rabbitmq", &["redrive-amqp091", "redrive-core", "redrive-transport"]),
    ("redrive-servicebus", &["redrive-core", "redrive-transport"]),
    // Stand apart: people take them without redrive.
    ("redrive-amqp091", &[]),
    ("redrive-emulator-host", &[]),
    ("redrive-rabbitmq-emulator", &["redrive-amqp091", "redrive-emulator-host"]),
    ("redrive-servicebus-emulator", &["redrive-emulator-host"]),
    ("redrive-cli", &["redrive"]),
    (
        "redrive",
        &[
            "redrive-consumer",
            "redrive-core",
            "redrive-macros",
            "redrive-memory",
            "redrive-ops",
            "redrive-rabbitmq",
            "redrive-servicebus",
            "redrive-telemetry",
        ],
    ),
];

/// The crates that the ground floor may depend on. None of them knows a broker or a runtime.
const CORE_STANDS_ON: &[&str] = &[
    "anyhow",
    "async-trait",
    "bytes",
    "fastrand",
    "humantime",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "thiserror",
    "tracing",
];

#[test]
fn lower_crates_know_nothing_of_higher_ones() {
    for Package { name: package, dependencies, .. } in packages() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package) else {
            panic!(
                "`{package}` is not in the dependency rule: give it its floor, here and in docs/architecture.md"
            );
        };
        for dependency in dependencies.iter().filter(|name| name.starts_with("redrive")) {
            assert!(allowed.contains(&dependency.as_str()), "`{package}` must not depend on `{dependency}`");
        }
    }
}

#[test]
fn the_ground_floor_knows_no_broker_and_no_runtime() {
    let core = packages().into_iter().find(|package| package.name == "redrive-core").unwrap();
    for dependency in core.dependencies {
        assert!(
            CORE_STANDS_ON.contains(&dependency.as_str()),
            "`redrive-core` must not depend on `{dependency}`"
        );
    }
}

/// A published crate of the workspace.
struct Package {
    name: String,
    folder: PathBuf,
    /// What it depends on outside of its tests.
    dependencies: Vec<String>,
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_published = |package: &&Value| package["publish"].is_null();
    let for_others = |dependency: &&Value| dependency["kind"].as_str() != Some("dev");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let read = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("a list");
        Package {
            name: text(&package["name"]),
            folder: Path::new(&text(&package["manifest_path"])).parent().expect("a folder").to_owned(),
            dependencies: dependencies.iter().filter(for_others).map(|it| text(&it["name"])).collect(),
        }
    };
    packages.iter().filter(is_published).map(read).collect()
}
