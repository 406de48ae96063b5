//! Makes tests of scenarios in Rust: each on RabbitMQ and on the emulator, in both versions.

/// For each function `async fn name(scene: &Scene) -> Result<Vec<String>>`, which gives back the names that it declared: four tests.
#[macro_export]
macro_rules! everywhere {
    ($($name:ident),+ $(,)?) => {
        $crate::everywhere!(@on rabbitmq_v3_10, $crate::rabbitmq::On::RabbitMq($crate::rabbitmq::Version::V3_10), $($name),+);
        $crate::everywhere!(@on rabbitmq_v4_3, $crate::rabbitmq::On::RabbitMq($crate::rabbitmq::Version::V4_3), $($name),+);
        $crate::everywhere!(@on emulator_of_3_10, $crate::rabbitmq::On::Emulator($crate::rabbitmq::Version::V3_10), $($name),+);
        $crate::everywhere!(@on emulator_of_4_3, $crate::rabbitmq::On::Emulator($crate::rabbitmq::Version::V4_3), $($name),+);
    };
    (@on $place:ident, $on:expr, $($name:ident),+) => {
        mod $place {
            $(
                #[tokio::test]
                async fn $name() -> anyhow::Result<()> {
                    let scene = $crate::rabbitmq::Scene::open($on).await?;
                    let names = super::$name(&scene).await?;
                    scene.close(&names).await
                }
            )+
        }
    };
}
