use std::time::Duration;

use super::*;
use tokio::sync::mpsc;

#[tokio::test]
async fn a_job_that_panics_leaves_its_place_to_the_next() {
    let (done, mut told) = mpsc::unbounded_channel();
    let mut workers = Workers::new(2, move |job: u32| {
        let done = done.clone();
        async move {
            assert_ne!(job % 2, 0, "an even job");
            done.send(job).unwrap();
        }
    });
    let mut panicked = 0;
    for job in 0..20 {
        while workers.room(2) == 0 {
            workers.changed(|ended| panicked += u32::from(ended.is_err())).await;
        }
        workers.hand(job);
        workers.call();
    }
    workers.all_done(|ended| panicked += u32::from(ended.is_err())).await;
    assert_eq!(workers.open(), 0);
    let mut odd = Vec::new();
    while let Ok(job) = told.try_recv() {
        odd.push(job);
    }
    odd.sort_unstable();
    assert_eq!(odd, (0..20).filter(|job| job % 2 == 1).collect::<Vec<_>>());
    while panicked < 10 {
        workers.changed(|ended| panicked += u32::from(ended.is_err())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_takes_nobody_along_for_whom_there_was_no_room() {
    let (done, mut told) = mpsc::unbounded_channel();
    let mut workers = Workers::new(1, move |job: u32| {
        let done = done.clone();
        async move {
            tokio::task::yield_now().await;
            assert_ne!(job, 0, "the first");
            done.send(job).unwrap();
        }
    });
    // The second job comes in addition, like a suspect beside a handler that is overdue.
    (0..2).for_each(|job| workers.hand(job));
    let all_done = tokio::time::timeout(Duration::from_secs(60), workers.all_done(|_| {})).await;
    all_done.expect("nobody takes up the second");
    assert_eq!(told.recv().await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_that_wait_for_each_other_are_all_taken_up() {
    let (done, mut told) = mpsc::unbounded_channel();
    let together = Arc::new(tokio::sync::Barrier::new(3));
    let mut workers = Workers::new(3, move |round: u32| {
        let (done, together) = (done.clone(), Arc::clone(&together));
        async move {
            // Ends only when all three jobs run.
            together.wait().await;
            done.send(round).unwrap();
        }
    });
    for round in 0..2_000 {
        while workers.room(1) == 0 {
            workers.changed(|_| {}).await;
        }
        for _ in 0..3 {
            workers.hand(round);
        }
        workers.call();
        for _ in 0..3 {
            // Only the workers themselves call the second and the third.
            let told = tokio::time::timeout(Duration::from_secs(120), told.recv()).await;
            assert_eq!(told, Ok(Some(round)), "a worker was not called");
        }
    }
}

#[tokio::test]
async fn quick_jobs_that_come_together_are_done_by_one_worker() {
    let did = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let noting = Arc::clone(&did);
    let mut workers = Workers::new(32, move |_: u32| {
        let noting = Arc::clone(&noting);
        async move {
            noting.lock().insert(tokio::task::id());
        }
    });
    let mut do_all = async || {
        (0..32).for_each(|job| workers.hand(job));
        workers.call();
        workers.all_done(|_| {}).await;
    };
    do_all().await;
    // All workers exist now, and wait.
    tokio::task::yield_now().await;
    did.lock().clear();
    do_all().await;
    assert_eq!(did.lock().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_blocks_its_thread_holds_up_no_other() {
    let (done, mut told) = mpsc::unbounded_channel();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let mut workers = Workers::new(3, move |job: u32| {
        let (done, blocked) = (done.clone(), Arc::clone(&blocked));
        async move {
            if job == 0 {
                let _ = blocked.lock().recv();
            }
            done.send(job).unwrap();
        }
    });
    // Creates the workers, one of them called.
    (1..4).for_each(|job| workers.hand(job));
    workers.call();
    workers.all_done(|_| {}).await;
    for _ in 1..4 {
        told.recv().await;
    }
    for job in 0..3 {
        workers.hand(job);
    }
    workers.call();
    let mut first = Vec::new();
    while first.len() < 2 {
        tokio::select! {
            done = told.recv() => first.extend(done),
            () = workers.changed(|_| {}) => {}
        }
    }
    assert!(!first.contains(&0), "{first:?}");
    release.send(()).unwrap();
    assert_eq!(told.recv().await, Some(0));
    workers.all_done(|_| {}).await;
}
