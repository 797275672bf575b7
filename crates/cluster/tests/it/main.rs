//! Tests of the public interface, in one program: it links once.

mod audit;
mod balancer;
mod behaviour;
mod change;
mod frames;
mod freshness;
mod health;

mod published;
mod rates;
mod scale;
