//! RabbitMQ's own `rabbitmqadmin`: that of 3.10 in Python, and the other one of 4.3, on the emulator's HTTP.

use lapin::options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use redrive_brokers::{Version, command, install, report};
use redrive_rabbitmq_emulator::{Emulator, Version as Behavior};

/// A command in each line, and the words that its answer must contain.
const OF_3_10: &str = r#"
show overview => 3.10 rabbit@emulator
list nodes => rabbit@emulator
declare vhost name=other => declared
list vhosts => other
declare user name=ann password=secret tags=administrator => user declared
declare permission vhost=other user=ann configure=.* write=.* read=.* => permission declared
list permissions => ann
--username=ann --password=secret --vhost=other list queues => No items
declare queue name=orders arguments={"x-queue-type":"quorum"} => queue
declare exchange name=events type=topic => exchange declared
list exchanges => events topic
declare binding source=events destination=orders routing_key=order.# => binding declared
list bindings => order.#
declare policy name=dead pattern=^orders$ definition={"dead-letter-exchange":""} apply-to=queues => policy declared
list policies => dead ^orders$
publish exchange=events routing_key=order.new payload=hello => Message published
publish exchange=events routing_key=nothing payload=hello => NOT
list queues name messages => orders 1
get queue=orders ackmode=ack_requeue_true => hello order.new
get queue=orders ackmode=ack_requeue_false => hello True
get queue=orders => No items
purge queue name=orders => queue purged
export DATA/definitions.json => Exported
delete policy name=dead => policy deleted
delete exchange name=events => exchange deleted
delete queue name=orders => queue deleted
delete vhost name=other => vhost deleted
delete user name=ann => user deleted
list policies => No items
import DATA/definitions.json => Uploaded
list policies => dead
list queues => orders
list users => ann
list connections => guest
list channels => guest
list consumers => tag-of-the-consumer 7
"#;

/// As above.
const OF_4_3: &str = r#"
show overview => 4.3
nodes list => rabbit@emulator
vhosts declare --name other
vhosts list => other
users declare --name ann --password secret --tags administrator
--vhost other permissions declare --user ann --configure .* --write .* --read .*
permissions list => ann
--username ann --password secret queues list => queue_type
queues declare --name orders --type quorum
exchanges declare --name events --type topic
exchanges list => events topic
bindings declare --source events --destination orders --destination-type queue --routing-key order.#
bindings list => order.#
policies declare --name dead --pattern ^orders$ --apply-to queues --priority 1 --definition {"dead-letter-exchange":""}
policies list => dead ^orders$
publish message --exchange events --routing-key order.new --payload hello => routed successfully
queues list => orders quorum dead
queues show --name orders => orders quorum
get messages --queue orders --ack-mode ack_requeue_true => hello order.new
get messages --queue orders --ack-mode ack_requeue_false => hello true
queues purge --name orders
definitions export --file DATA/definitions.json
policies delete --name dead
exchanges delete --name events
queues delete --name orders
vhosts delete --name other
users delete --name ann
definitions import --file DATA/definitions.json
policies list => dead
queues list => orders
users list => ann
health_check local_alarms => passed
connections list => 127.0.0.1 guest
channels list => running
list consumers => tag-of-the-consumer 7
"#;

async fn hold(version: Version, behavior: Behavior, steps: &'static str) {
    let emulator =
        Emulator::builder().version(behavior).listen_http("127.0.0.1:0").start().await.expect("it starts");
    let http = emulator.http_address().expect("it was asked for");
    let client =
        Connection::connect(&emulator.url(), ConnectionProperties::default()).await.expect("connected");
    let channel = client.create_channel().await.expect("a channel");
    channel.basic_qos(7, BasicQosOptions::default()).await.expect("a prefetch");
    let (queue, table) = ("watched", FieldTable::default());
    channel
        .queue_declare(queue.into(), QueueDeclareOptions::default(), table.clone())
        .await
        .expect("declared");
    let options = BasicConsumeOptions::default();
    let _consumer = channel
        .basic_consume(queue.into(), "tag-of-the-consumer".into(), options, table)
        .await
        .expect("consumes");

    tokio::task::spawn_blocking(move || {
        let installed = install::install(version).expect("RabbitMQ is installed");
        let data = tempfile::tempdir().expect("a folder");
        // The one of 4.3 does not start without certificates, even where it needs none.
        let any = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(data.path().join("ca.pem"), any.cert.pem()).expect("written");
        let port = http.port().to_string();
        for step in steps.trim().lines() {
            let (told, expected) = step.split_once(" => ").unwrap_or((step, ""));
            let Some((mut command, inside)) = installed.rabbitmqadmin(data.path()) else {
                report(&format!(
                    "not run: rabbitmqadmin of {version} on the emulator: the Docker image lacks it"
                ));
                return;
            };
            let told: Vec<_> =
                told.split(' ').map(|word| word.replace("DATA", &inside.to_string_lossy())).collect();
            command.args(["--host", "127.0.0.1", "--port", &port]).args(&told);
            command.env("SSL_CERT_FILE", inside.join("ca.pem"));
            let answer = command::run(&mut command).unwrap_or_else(|error| panic!("{told:?}: {error:#}"));
            let missing: Vec<_> = expected.split(' ').filter(|word| !answer.contains(word)).collect();
            assert!(missing.is_empty(), "{told:?} does not say {missing:?}:\n{answer}");
        }
    })
    .await
    .expect("all steps");
    let vhost = emulator.default_vhost().expect("it has one");
    assert_eq!(vhost.queue("orders").expect("it was imported").policy.as_deref(), Some("dead"));
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_10() {
    hold(Version::V3_10, Behavior::V3_10, OF_3_10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v4_3() {
    hold(Version::V4_3, Behavior::V4_3, OF_4_3).await;
}
